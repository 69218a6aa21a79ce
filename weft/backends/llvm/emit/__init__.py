"""The Loop IR as LLVM text: objects that each know one thing and ask the others.

    Writer <- Registers <- Reals <- Scalars, Casts        one element, or lanes of them
                           Indices <- Places <- Rows <- Memory      where elements are
                           Failures, Flow, Loops <- Statements      what happens
                           Kernel, Main                   functions, with their parameters

``instructions`` has what differs from processor to processor. Another target of LLVM is an
``InstructionSet``, a ``Loops`` that says how parallel and vector loops run there, and a ``Kernel`` with its
parameters and its scratch memory.
"""
