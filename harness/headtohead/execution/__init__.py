"""Scheduler, workers, stacks on other machines, and loading finished runs."""
