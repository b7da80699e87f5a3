"""Contrasts and verdicts of an experiment, published claims, two-way tables."""
