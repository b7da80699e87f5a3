"""Measured facts of a Tatoeba file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from headtohead.data import read_corpus
from headtohead.data.normalise import ascii_fold
from headtohead.data.splits import divide, leak
from headtohead.testing.tiny import data_config

Texts = list[tuple[str, str]]

SPANISH = "eng-spa.manythings-2019-07-21.2col.tsv.xz"

pytestmark = pytest.mark.slow  # files of 100,000 rows and more


@pytest.fixture(scope="module")
def corpus(real: Callable, module_cache: Path) -> Callable[[str, str], Texts]:
    """Return the raw texts of a file; each file is read once."""

    @cache
    def read(name: str, pair: str) -> Texts:
        config = data_config(dataset="tatoeba", options={"pair": pair, "file": str(real(name))})
        pairs = read_corpus(config, module_cache).pairs
        return [(pair.source, pair.target) for pair in pairs]

    return read


def test_a_row_split_of_eng_spa_leaks_as_measured(corpus: Callable) -> None:
    source = [ascii_fold(text) for text, _ in corpus(SPANISH, "eng-spa")]
    rows = len(source)
    in_expectation = sum(n * (1 - 0.1 ** (n - 1)) for n in Counter(source).values()) / rows
    leaks = []
    for seed in range(1, 6):
        parts = divide(np.arange(rows), [None] * rows, valid=1, test=0.1, seed=seed)
        train = {source[row] for row in parts["train"].tolist()}
        leaks.append(leak(train, [source[row] for row in parts["test"].tolist()]))
    assert in_expectation == pytest.approx(0.240, abs=0.001)
    assert sum(leaks) / 5 == pytest.approx(in_expectation, abs=0.004)
    assert min(leaks) < 0.236 < max(leaks)


def test_a_grouped_split_of_eng_spa_leaks_nothing(prepared: Callable, real: Callable) -> None:
    data = prepared("tatoeba", options={"file": str(real(SPANISH))}, limit=20_000)
    assert data.record["counts"] == {"train": 18_000, "valid": 1_000, "test": 1_000}
    train, test = data.splits["train"], data.splits["test"]
    assert data.record["leak"] == 0.0
    assert not set(train.source_text) & set(test.source_text)
    accepted = {text for references in test.references for text in references}
    assert not set(train.target_text) & accepted
    assert max(len(references) for references in test.references) > 3
