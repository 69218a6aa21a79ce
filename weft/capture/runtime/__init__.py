"""What converted code calls."""
