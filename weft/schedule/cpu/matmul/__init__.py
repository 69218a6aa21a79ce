"""Matrix products for processors: tiles in registers, packed sides, the BLAS library for the largest."""
