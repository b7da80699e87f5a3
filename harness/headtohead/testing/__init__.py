"""Invariants of a Transformer variant, as functions and as pytest classes for plugin authors.

`check(config)` checks every invariant on one configuration. `headtohead.testing.contracts` has the pytest
classes. Importing this package imports torch.
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
    """Check every invariant on one configuration and return the verdicts by invariant name.

    Training invariants run a few float64 steps, so that a call takes seconds.
    """
    subject = Subject(config)
    return {invariant.name: invariant(subject) for invariant in INVARIANTS}
