"""What is shaped for graphics processors: blocks of threads, shared memory, rows in registers."""
