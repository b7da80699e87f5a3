"""Built-in attention styles, one file each."""
