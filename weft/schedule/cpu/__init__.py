"""The part of the schedule that is shaped for processors: register tiles, lanes, rows on the stack."""
