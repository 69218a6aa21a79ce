"""Mathematical functions as expansions into basic scalar instructions."""
