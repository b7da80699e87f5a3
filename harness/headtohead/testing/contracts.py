"""Contract suites of components and datasets: subclass a suite and name the entry, as for ``h2h check``.

    class TestMyPositional(ComponentContract):
        entry = "positional/mine"

The subclass then checks every invariant. The entry must be registered (``headtohead.register``, an
entry point, or a plugin file).
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from headtohead.plugins.registry import find_dataset
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetSubject
from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


class ComponentContract:
    """Every invariant on a small variant with one registered entry: set ``entry``."""

    entry: ClassVar[str]
    """Family and name of the entry, such as ``positional/mine``; defaults are used in the other families."""
    options: ClassVar[dict[str, Any]] = {}
    """Options that differ from their defaults."""

    @pytest.fixture(scope="class")
    def subject(self) -> Subject:
        """Return the subject that the invariants check."""
        family, _, name = self.entry.partition("/")
        return Subject(tiny_config(**{family: {"name": name, **self.options}}))

    @pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
    def test_invariant_has_no_unexpected_violation(
        self, invariant: Invariant, subject: Subject
    ) -> None:
        """The invariant holds, does not apply, or is violated by a setting with this known violation."""
        verdict = invariant(subject)
        assert verdict.outcome != "violated", (
            f"{invariant.name}: {verdict}; example: {verdict.counterexample}"
        )


class DatasetContract:
    """Every invariant of datasets on the corpora of all splits: set ``entry``, such as ``dataset/mine``."""

    entry: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    def subject(self) -> DatasetSubject:
        """Return the subject that the invariants check."""
        name = self.entry.rpartition("/")[2]
        dataset = find_dataset(name)
        return DatasetSubject.load(name, dataset, dataset.Options.model_validate(self.options))

    @pytest.mark.parametrize("invariant", DATASET_INVARIANTS, ids=lambda invariant: invariant.name)
    def test_invariant_holds(self, invariant: Invariant, subject: DatasetSubject) -> None:
        """The invariant has no violation."""
        verdict = invariant(subject)
        assert verdict.state == "holds", str(verdict)
