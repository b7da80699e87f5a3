"""The states of a run and which of them are final."""

from __future__ import annotations

PLANNED = "PLANNED"
CLAIMED = "CLAIMED"
RUNNING = "RUNNING"
DONE = "DONE"
DIVERGED = "DIVERGED"
OOM = "OOM"
TIMEOUT = "TIMEOUT"
KILLED = "KILLED"
FAILED = "FAILED"
EXCLUDED = "EXCLUDED"

RESULTS = frozenset({DONE, DIVERGED})
"""States that are an answer: nothing is left to do."""

FINAL = frozenset({DONE, DIVERGED, OOM, TIMEOUT, FAILED})
"""States that the same command does not start again by itself."""
