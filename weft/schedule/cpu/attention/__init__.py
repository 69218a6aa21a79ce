"""Attention for processors, block by block, both ways."""
