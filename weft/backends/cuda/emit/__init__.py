"""Kernels of the Loop IR as PTX, by the writer of LLVM text and LLVM's own code for it."""
