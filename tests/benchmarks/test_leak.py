"""The division of test sentences into leaked and other sentences."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from headtohead.config.resolve import resolve
from headtohead.data import cache_root, prepare
from headtohead.plugins.registry import current
from headtohead.storage.translations import Translation


@pytest.fixture(scope="module")
def leak(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("leak")


@pytest.mark.slow
def test_translations_are_divided_by_their_source(leak: ModuleType) -> None:
    config = resolve({"data": {"dataset": "toy-grammar", "split": "row"}, "train": {"steps": 1}}, current())
    splits = prepare(config.data, cache_root()).splits
    known, new = splits["train"].source_text[0], "a sentence of no split"
    rows = [Translation(known, ("x y",), "x y", True), Translation(new, ("a b c d", "x"), "a b c d", True)]
    assert leak.divided(config, [rows, rows[1:]]) == {"leaked": [rows[:1]], "not leaked": [rows[1:], rows[1:]]}
    assert leak.bleu(rows[1:]) == pytest.approx(100)
