"""Scheduling and training of stacks on this or other machines, and loading of finished runs."""
