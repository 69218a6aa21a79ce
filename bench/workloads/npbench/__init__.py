"""The kernels of the NPBench suite, written anew: one source each, run by NumPy, weft and Numba."""

from bench.workloads.npbench.cases import CASES as CASES
