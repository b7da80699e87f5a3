"""The checks behind ``h2h check``: every invariant for one entry, or for every combination of the registry."""
