"""CUDA: programs for graphics processors as data, and the code of their kernels as PTX."""
