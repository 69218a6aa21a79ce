"""weft beside its peers: ``python -m bench`` runs the rows of the table that ``bench/README.md`` explains."""
