"""Contract suites of encodings, attention styles and masks: subclass a suite and override a fixture.

    class TestMyPositional(PositionalContract):
        @pytest.fixture
        def name(self):
            return "my-positional"

The subclass then checks every invariant. The entry must be registered (``headtohead.register``, an
entry point, or a plugin file). The suite of datasets is `headtohead.testing.datasets`.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pytest

from headtohead.config.entries import recorded_config
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.shrinking import shrink
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


def each_invariant() -> pytest.MarkDecorator:
    """Return the mark that runs a test once for every invariant, passed as ``invariant``."""
    return pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)


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

    @each_invariant()
    def test_invariant_has_no_unexpected_violation(self, invariant: Invariant, subject: Subject) -> None:
        """The invariant holds, does not apply, or is violated by a setting with this known violation."""
        verdict = invariant(subject)
        if verdict.state == "violated" and not verdict.cause:
            shrunk = shrink(invariant, subject, verdict)
            pytest.fail(f"{invariant.name}: {shrunk}\nsmallest counterexample: {shrunk.counterexample}")


class _EntryContract(VariantContract):
    """Every invariant on a small variant with one registered entry and defaults in the other families."""

    family = ""

    @pytest.fixture
    def name(self) -> str:
        """Return the name of the registered entry."""
        raise NotImplementedError("override the fixture 'name'")

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {}

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


@lru_cache(maxsize=256)
def _shared_subject(config_json: str, entries: tuple[type, ...]) -> Subject:
    """Return the cached subject of a configuration, with its model built once."""
    return Subject(recorded_config(json.loads(config_json), current(), "this one"))


def _entries(config: RunConfig) -> tuple[type, ...]:
    """Return the entry classes of a configuration, since a name may be registered again for another class."""
    return tuple(
        current().find(family, entry.name).entry
        for family in ("positional", "attention", "masking")
        for entry in getattr(config, family).by_role().values()
    )
