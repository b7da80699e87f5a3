"""The plan of an experiment, from its design: variants, compatibility, matching, equal variants, stacks, costs."""
