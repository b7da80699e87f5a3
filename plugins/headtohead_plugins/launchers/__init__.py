"""Built-in launchers, one file each."""
