"""Built-in entries of the family attention: one file each."""
