"""Built-in entries of the family positional: one file each."""
