"""Experiment files: checked, resolved, expanded to variants, given keys and planned."""
