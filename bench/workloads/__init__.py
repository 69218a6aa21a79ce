"""The workloads, one row of the table a file: its data, and how users of each framework write it best."""
