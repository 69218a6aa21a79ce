"""From a graph to a program of loops: what is fused, in which order it runs, and where each value lies."""
