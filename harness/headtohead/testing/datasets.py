"""The contract suite of datasets: subclass it in a test file and name the dataset.

    class TestMyDataset(DatasetContract):
        @pytest.fixture
        def name(self):
            return "my-dataset"

The dataset must be registered (``headtohead.register``, an entry point, or a plugin file).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytest

from headtohead.plugins.registry import Registered, current
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetInvariant, DatasetSubject


class DatasetContract:
    """Every invariant of datasets on the corpora of all splits: override ``name``."""

    @pytest.fixture
    def name(self) -> str:
        """Return the name of the registered dataset."""
        raise NotImplementedError("override the fixture 'name'")

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        """Return the options that differ from their defaults."""
        return {}

    @pytest.fixture
    def subject(self, name: str, options: Mapping[str, Any]) -> DatasetSubject:
        """Return the subject that the invariants check; subjects are cached."""
        entry = current().find("dataset", name)
        return _shared_subject(entry, entry.entry.Options.model_validate(dict(options)).model_dump_json())

    @pytest.mark.parametrize("invariant", DATASET_INVARIANTS, ids=lambda invariant: invariant.name)
    def test_invariant_holds(self, invariant: DatasetInvariant, subject: DatasetSubject) -> None:
        """The invariant has no violation."""
        verdict = invariant(subject)
        assert verdict.state == "holds", str(verdict)


@lru_cache(maxsize=16)
def _shared_subject(entry: Registered, options_json: str) -> DatasetSubject:
    dataset = current().dataset(entry.name)
    return DatasetSubject.load(entry.name, dataset, dataset.Options.model_validate_json(options_json))
