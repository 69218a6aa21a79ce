"""Shapes and axes: reshaping, joining, slicing, padding."""
