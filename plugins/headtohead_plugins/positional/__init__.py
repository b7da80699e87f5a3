"""Built-in positional encodings, one file each."""
