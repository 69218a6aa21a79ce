"""A program for C: the functions around it as LLVM text, and all of it as objects for a linker."""
