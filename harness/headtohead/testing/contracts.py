"""Contract suites: subclass one in a test file, override one fixture, and get every invariant.

    class TestMyPositional(PositionalContract):
        @pytest.fixture
        def name(self):
            return "my-positional"

The entry must be registered (``headtohead.register``, an entry point, or a plugin file).
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from headtohead.data import hash_pairs
from headtohead.plugins.dataset import Corpus
from headtohead.plugins.registry import current
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import INVARIANTS
from headtohead.testing.smallest import smallest
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
        if verdict.state == "broken" and not verdict.because:
            found = smallest(invariant, subject, verdict)
            pytest.fail(f"{invariant.name}: {found}\nsmallest example: {found.shown}")


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


class DatasetContract:
    """What the harness takes for granted of a dataset: override ``name``."""

    @pytest.fixture
    def name(self) -> str:
        """Return the name of the registered dataset."""
        raise NotImplementedError("override the fixture 'name'")

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Return options other than the defaults."""
        return {}

    @pytest.fixture
    def corpora(self, name: str, options: dict[str, Any]) -> dict[str, tuple[Corpus, Corpus]]:
        """Return the corpus of each split, loaded twice."""
        entry = current().dataset(name)
        chosen = entry.Options.model_validate(options).model_dump_json()
        return {split: (one, two) for split, one, two in _shared_corpora(name, chosen)}

    def test_the_same_options_load_the_same_pairs(self, corpora: dict[str, tuple[Corpus, Corpus]]) -> None:
        """Pairs, their order and the data_hash are decided by the options."""
        for one, again in corpora.values():
            assert list(one.pairs) == list(again.pairs)
            assert one.data_hash == again.data_hash == hash_pairs(list(one.pairs))

    def test_every_pair_has_words_and_a_group(self, corpora: dict[str, tuple[Corpus, Corpus]]) -> None:
        """No side is empty; a pair's own part is one of the three."""
        for one, _ in corpora.values():
            assert one.pairs
            for pair in one.pairs:
                assert pair.source.split(), pair
                assert pair.target.split(), pair
                assert pair.group, pair
                assert pair.split in (None, "train", "valid", "test"), pair

    def test_no_group_is_on_both_sides_of_a_split(self, corpora: dict[str, tuple[Corpus, Corpus]]) -> None:
        """Where a dataset divides its pairs itself, a group is in one part."""
        for split, (one, _) in corpora.items():
            parts: dict[str, set[str]] = {}
            for pair in one.pairs:
                if pair.split is not None and split != "row":
                    parts.setdefault(pair.group, set()).add(pair.split)
            assert [group for group, found in parts.items() if len(found) > 1] == []


@lru_cache(maxsize=16)
def _shared_corpora(name: str, options_json: str) -> list[tuple[str, Corpus, Corpus]]:
    """Load every split of a dataset twice, once for all tests of it."""
    entry = current().dataset(name)
    options = entry.Options.model_validate_json(options_json)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        return [(split, entry.load(options, split, cache), entry.load(options, split, cache)) for split in entry.splits]


@lru_cache(maxsize=256)
def _shared_subject(config_json: str, entries: tuple[type, ...]) -> Subject:
    """Return one subject for all tests of a configuration: its model is built once."""
    return Subject(RunConfig.model_validate_json(config_json))


def _entries(config: RunConfig) -> tuple[type, ...]:
    """Return the classes behind a configuration's names, which another plugin may have taken."""
    return tuple(
        current().find(family, getattr(config, family).role(role).name).entry
        for family in ("positional", "attention", "masking")
        for role in ROLES
    )
