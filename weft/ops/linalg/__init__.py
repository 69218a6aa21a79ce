"""Ops and functions of linear algebra."""
