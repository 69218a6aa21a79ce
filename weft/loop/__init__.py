"""The Loop IR: loops, scalars, buffers. What a graph is lowered to, and what backends make code of."""
