"""From a design to a plan: variants, compatibility, matching, duplicates, stacks, cost, power."""
