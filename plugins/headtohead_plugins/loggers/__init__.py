"""Built-in loggers, a file per logger."""
