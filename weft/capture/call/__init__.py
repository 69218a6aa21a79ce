"""Compiled functions: versions, calls of them, step by step, and two compared."""
