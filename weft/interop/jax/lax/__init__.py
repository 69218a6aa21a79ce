"""A function of weft for each primitive of lax."""
