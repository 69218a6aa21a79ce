"""Rules for one element of a result, from elements of the inputs: what has one fuses with anything else."""
