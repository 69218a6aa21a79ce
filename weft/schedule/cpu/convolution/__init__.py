"""Convolutions for processors, which never copy their windows out."""
