"""Rows of ``make bench-gpu``: weft on a GPU beside PyTorch eager, torch.compile and jax.jit, in one run."""
