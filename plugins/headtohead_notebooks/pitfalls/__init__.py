"""Measurements of the pitfalls of a configuration, on its own data and at its own sizes."""
