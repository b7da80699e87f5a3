"""How many groups of examples make them a source of variance. Without imports: planning needs the number alone."""

MIN_GROUPS = 20
"""Smallest number of groups of examples whose variance enters intervals."""
