"""Built-in datasets, one file each."""
