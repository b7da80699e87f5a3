"""Built-in norms, one file each."""
