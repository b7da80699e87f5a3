"""Built-in loggers, one file each."""
