"""Built-in launchers, a file per launcher."""
