"""Pooling, its parts and its inverses."""
