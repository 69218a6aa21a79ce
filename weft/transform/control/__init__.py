"""Control flow: put into graphs, differentiated, batched."""
