"""Contract suites: subclass one in a test file, override one fixture, and get every invariant.

    class TestMyPositional(PositionalContract):
        @pytest.fixture
        def name(self):
            return "my-positional"

The entry must be registered (``headtohead.register``, an entry point, or a plugin file).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from headtohead import plugins
from headtohead.experiment.schema import RunConfig
from headtohead.families.entry import ROLES
from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


def each_invariant() -> pytest.MarkDecorator:
    """Return the mark that runs a test once for every invariant, as ``invariant``."""
    return pytest.mark.parametrize("invariant", INVARIANTS, ids=[one.name for one in INVARIANTS])


class VariantContract:
    """Every invariant, for one configuration: override ``config``."""

    @pytest.fixture
    def config(self) -> RunConfig:
        """Return the ``RunConfig`` under test."""
        raise NotImplementedError("override the fixture 'config'")

    @pytest.fixture
    def subject(self, config: RunConfig) -> Subject:
        """Return what the invariants ask."""
        return _shared_subject(config.model_dump_json(), _entries(config))

    @each_invariant()
    def test_invariant_is_not_broken(self, invariant: Invariant, subject: Subject) -> None:
        """The invariant holds, does not apply and fails as predicted, or a choice breaks it."""
        verdict = invariant(subject)
        assert verdict.state != "broken" or verdict.because, f"{invariant.name}: {verdict}"


class _EntryContract(VariantContract):
    """Every invariant for one registered entry, beside plain choices in the other families."""

    family = ""

    @pytest.fixture
    def name(self) -> str:
        """Return the name of the registered entry."""
        raise NotImplementedError("override the fixture 'name'")

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Return options other than the defaults."""
        return {}

    @pytest.fixture
    def config(self, name: str, options: dict[str, Any]) -> RunConfig:
        """Return a small variant that uses the entry."""
        return tiny_config(**{self.family: {"name": name, **options}})


class PositionalContract(_EntryContract):
    """Every invariant for one positional encoding: override ``name``."""

    family = "positional"


class AttentionContract(_EntryContract):
    """Every invariant for one attention style: override ``name``."""

    family = "attention"


class MaskingContract(_EntryContract):
    """Every invariant for one masking scheme: override ``name``."""

    family = "masking"


@lru_cache(maxsize=256)
def _shared_subject(config_json: str, entries: tuple[type, ...]) -> Subject:
    """Return one subject for all tests of a configuration: its model is built once."""
    return Subject(RunConfig.model_validate_json(config_json))


def _entries(config: RunConfig) -> tuple[type, ...]:
    """Return the classes behind a configuration's names, which another plugin may have taken."""
    return tuple(
        plugins.current().find(family, getattr(config, family).role(role).name).entry
        for family in ("positional", "attention", "masking")
        for role in ROLES
    )
