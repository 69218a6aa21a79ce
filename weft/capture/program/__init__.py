"""What a captured program is made of: arguments, slots, sources, guards."""
