"""The division of test sentences into leaked and other sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from headtohead.config.resolve import resolve
from headtohead.data import cache_root, prepare
from headtohead.plugins.registry import current
from headtohead.storage.translations import read_translations


@pytest.fixture(scope="module")
def leak(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("leak")


@pytest.mark.slow
def test_translations_are_divided_by_their_source(leak: ModuleType, tmp_path: Path) -> None:
    config = resolve({"data": {"dataset": "toy-grammar", "split": "row"}, "train": {"steps": 1}}, current())
    splits = prepare(config.data, cache_root()).splits
    known, new = splits["train"].source_text[0], "a sentence of no split"
    lines = ["source\treferences\thypothesis\texact", f"{known}\tx y\tx y\t1", f"{new}\ta b c d ||| x\ta b c d\t1"]
    (tmp_path / "translations.tsv").write_text("\n".join(lines) + "\n")
    parts = leak.divided(config, [tmp_path])
    assert {kind: [[row.source for row in rows] for rows in runs] for kind, runs in parts.items()} == {
        "leaked": [[known]],
        "not leaked": [[new]],
    }
    rows = read_translations(tmp_path)
    assert leak.bleu(rows[1:]) == pytest.approx(100)
