"""Built-in masking schemes, one file each."""
