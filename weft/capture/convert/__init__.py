"""From the syntax of a user's function to that of a converted one."""
