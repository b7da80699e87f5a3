"""The states of a run, and the sets of states that other modules ask for."""

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

UNFINISHED = ACTIVE | {PLANNED}
"""States of a run that has not ended."""

RESULTS = frozenset({DONE, DIVERGED})
"""States with a result: the run is complete."""

RETRYABLE = frozenset({FAILED, OOM, TIMEOUT})
"""States without a result that only ``--retry`` trains again."""

FINAL = RESULTS | RETRYABLE
"""States that the same command does not start again by itself."""

ABNORMAL = RETRYABLE | {DIVERGED, KILLED, INTERRUPTED}
"""States that are listed with their reason: the run stopped without being DONE."""

STORED = FINAL | UNFINISHED | {KILLED}
"""States that ``status.json`` can hold."""
