"""The states of a run, and sets of states."""

from __future__ import annotations

PLANNED = "PLANNED"
LEASED = "LEASED"
RUNNING = "RUNNING"
DONE = "DONE"
DIVERGED = "DIVERGED"
OOM = "OOM"
TIMEOUT = "TIMEOUT"
KILLED = "KILLED"
"""The process died, or ran out of memory and is started again with a smaller stack or smaller microbatches."""

INTERRUPTED = "INTERRUPTED"
"""Displayed for a run that is LEASED or RUNNING in status.json while no process holds its lease, and for a DONE run
without one of its files.
"""

FAILED = "FAILED"

ACTIVE = frozenset({LEASED, RUNNING})
"""States in which a process holds the run's lease."""

PENDING = ACTIVE | {PLANNED}
"""States of a run that has not ended."""

RESULTS = frozenset({DONE, DIVERGED})
"""States of runs with a result."""

FAILURES = frozenset({FAILED, OOM, TIMEOUT})
"""States of failed runs, which are retrained only with ``--retry``."""

FINAL = RESULTS | FAILURES
"""States in which a repeated command does not retrain the run."""

ABNORMAL = FAILURES | {DIVERGED, KILLED, INTERRUPTED}
"""States of runs that stopped without being DONE; status lists them with their reason."""

STORED = FINAL | PENDING | {KILLED}
"""States that ``status.json`` can hold."""
