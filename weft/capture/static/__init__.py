"""Graphs that are written by hand, or imported."""
