"""The states of a run and which of them are final."""

from __future__ import annotations

PLANNED = "PLANNED"
LEASED = "LEASED"
RUNNING = "RUNNING"
DONE = "DONE"
DIVERGED = "DIVERGED"
OOM = "OOM"
TIMEOUT = "TIMEOUT"
KILLED = "KILLED"
INTERRUPTED = "INTERRUPTED"
"""Shown for a run that is LEASED or RUNNING by its status while no process holds its lease."""

FAILED = "FAILED"
EXCLUDED = "EXCLUDED"

ACTIVE = frozenset({LEASED, RUNNING})
"""States in which a process holds the run's lease."""

RESULTS = frozenset({DONE, DIVERGED})
"""States that are an answer: nothing is left to do."""

FINAL = frozenset({DONE, DIVERGED, OOM, TIMEOUT, FAILED})
"""States that the same command does not start again by itself."""
