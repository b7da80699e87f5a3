"""The built-in plugins of headtohead: one folder per family, one idea per file."""
