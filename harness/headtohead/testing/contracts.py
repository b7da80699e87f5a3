"""Contract suites of components, masks and datasets: subclass a suite and name the entry.

    class TestMyPositional(PositionalContract):
        name = "my-positional"

The subclass then checks every invariant. The entry must be registered (``headtohead.register``, an
entry point, or a plugin file).
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from headtohead.plugins.registry import current
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetSubject
from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


class _Contract:
    """Every invariant on a small variant with one registered entry and defaults in the other families."""

    family: ClassVar[str]
    name: ClassVar[str]
    """Name of the registered entry."""
    options: ClassVar[dict[str, Any]] = {}
    """Options that differ from their defaults."""

    @pytest.fixture(scope="class")
    def subject(self) -> Subject:
        """Return the subject that the invariants check."""
        return Subject(tiny_config(**{self.family: {"name": self.name, **self.options}}))

    @pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
    def test_invariant_has_no_unexpected_violation(self, invariant: Invariant, subject: Subject) -> None:
        """The invariant holds, does not apply, or is violated by a setting with this known violation."""
        verdict = invariant(subject)
        assert verdict.outcome != "violated", f"{invariant.name}: {verdict}; example: {verdict.counterexample}"


class PositionalContract(_Contract):
    """Every invariant on one positional encoding: set ``name``."""

    family = "positional"


class AttentionContract(_Contract):
    """Every invariant on one attention style: set ``name``."""

    family = "attention"


class MaskingContract(_Contract):
    """Every invariant on one masking scheme: set ``name``."""

    family = "masking"


class FeedForwardContract(_Contract):
    """Every invariant on one feed-forward network: set ``name``."""

    family = "feed_forward"


class NormContract(_Contract):
    """Every invariant on one norm: set ``name``."""

    family = "norm"


class DatasetContract:
    """Every invariant of datasets on the corpora of all splits: set ``name``."""

    name: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    def subject(self) -> DatasetSubject:
        """Return the subject that the invariants check."""
        dataset = current().dataset(self.name)
        return DatasetSubject.load(self.name, dataset, dataset.Options.model_validate(self.options))

    @pytest.mark.parametrize("invariant", DATASET_INVARIANTS, ids=lambda invariant: invariant.name)
    def test_invariant_holds(self, invariant: Invariant, subject: DatasetSubject) -> None:
        """The invariant has no violation."""
        verdict = invariant(subject)
        assert verdict.state == "holds", str(verdict)
