"""A function of weft for each ATen operator."""
