"""Contract suites of encodings, attention styles, masks and datasets: subclass a suite and override a fixture.

    class TestMyPositional(PositionalContract):
        @pytest.fixture
        def name(self):
            return "my-positional"

The subclass then checks every invariant. The entry must be registered (``headtohead.register``, an
entry point, or a plugin file).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from headtohead.config.entries import parsed_options
from headtohead.plugins.registry import Registered, current
from headtohead.schema.run_config import RunConfig
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetSubject
from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.shrinking import shrink
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


class VariantContract:
    """Every invariant on one configuration: override ``config``."""

    @pytest.fixture
    def config(self) -> RunConfig:
        """Return the configuration under test."""
        raise NotImplementedError("override the fixture 'config'")

    @pytest.fixture
    def subject(self, config: RunConfig) -> Subject:
        """Return the subject that the invariants check; subjects are cached per configuration."""
        return _shared_subject(config.model_dump_json(), _entries(config))

    @pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
    def test_invariant_has_no_unexpected_violation(self, invariant: Invariant, subject: Subject) -> None:
        """The invariant holds, does not apply, or is violated by a setting with this known violation."""
        verdict = invariant(subject)
        if verdict.state == "violated" and not verdict.cause:
            shrunk = shrink(invariant, subject, verdict)
            pytest.fail(f"{invariant.name}: {shrunk}\nsmallest counterexample: {shrunk.counterexample}")


class _Named:
    """The registered entry of a suite, and its options."""

    @pytest.fixture
    def name(self) -> str:
        """Return the name of the registered entry."""
        raise NotImplementedError("override the fixture 'name'")

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {}


class _EntryContract(_Named, VariantContract):
    """Every invariant on a small variant with one registered entry and defaults in the other families."""

    family = ""

    @pytest.fixture
    def config(self, name: str, options: dict[str, Any]) -> RunConfig:
        """Return a small variant with the entry."""
        return tiny_config(**{self.family: {"name": name, **options}})


class PositionalContract(_EntryContract):
    """Every invariant on one positional encoding: override ``name``."""

    family = "positional"


class AttentionContract(_EntryContract):
    """Every invariant on one attention style: override ``name``."""

    family = "attention"


class MaskingContract(_EntryContract):
    """Every invariant on one masking scheme: override ``name``."""

    family = "masking"


class DatasetContract(_Named):
    """Every invariant of datasets on the corpora of all splits: override ``name``."""

    @pytest.fixture
    def subject(self, name: str, options: dict[str, Any]) -> DatasetSubject:
        """Return the subject that the invariants check; subjects are cached."""
        entry = current().find("dataset", name)
        return _shared_dataset(entry, entry.entry.Options.model_validate(options).model_dump_json())

    @pytest.mark.parametrize("invariant", DATASET_INVARIANTS, ids=lambda invariant: invariant.name)
    def test_invariant_holds(self, invariant: Invariant, subject: DatasetSubject) -> None:
        """The invariant has no violation."""
        verdict = invariant(subject)
        assert verdict.state == "holds", str(verdict)


@lru_cache(maxsize=16)
def _shared_dataset(entry: Registered, options_json: str) -> DatasetSubject:
    dataset = current().dataset(entry.name)
    return DatasetSubject.load(entry.name, dataset, dataset.Options.model_validate_json(options_json))


@lru_cache(maxsize=256)
def _shared_subject(config_json: str, entries: tuple[type, ...]) -> Subject:
    """Return the cached subject of a configuration, with its model built once."""
    return Subject(parsed_options(RunConfig.model_validate_json(config_json), current(), "this one"))


def _entries(config: RunConfig) -> tuple[type, ...]:
    """Return the entry classes of a configuration, since a name may be registered again for another class."""
    return tuple(
        current().find(family, entry.name).entry
        for family in ("positional", "attention", "masking")
        for entry in getattr(config, family).by_role().values()
    )
