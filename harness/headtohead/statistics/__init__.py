"""Paired tests, intervals, power and equivalence: arrays in, dataclasses out."""
