"""The built-in variants of headtohead: one idea per file, one folder per family."""
