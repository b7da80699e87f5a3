"""What every variant must keep, as checks that anyone can run on their own plugin.

``check(config)`` asks every invariant of one configuration; ``contracts`` holds the same as pytest
classes. Importing this package imports torch, and ``contracts`` pytest.
"""

from __future__ import annotations

from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.testing.verdict import Verdict

__all__ = ["INVARIANTS", "Invariant", "Subject", "Verdict", "check", "tiny_config"]


def check(config: RunConfig) -> dict[str, Verdict]:
    """Ask every invariant of one configuration, by its name."""
    subject = Subject(config)
    return {one.name: one(subject) for one in INVARIANTS}
