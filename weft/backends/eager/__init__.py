"""Kernels for large arrays outside of graphs."""
