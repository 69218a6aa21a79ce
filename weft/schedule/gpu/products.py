"""Products of matrices on a GPU, without a library."""
