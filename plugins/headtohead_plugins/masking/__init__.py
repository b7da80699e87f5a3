"""Built-in entries of the family masking: one file each."""
