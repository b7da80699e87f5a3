"""Built-in entries of the family recipes: one file each."""
