"""From a design to a plan: variants, compatibility, matching, equal variants, stacks, costs and power."""
