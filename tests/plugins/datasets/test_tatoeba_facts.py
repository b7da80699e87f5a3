"""Measured facts of Tatoeba files, and the printed output of the tatoeba-en-es notebook."""

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

RAW = [
    ("Let's try something.", "¡Intentemos algo!"),
    ("I have to go to sleep.", "Tengo que irme a dormir."),
    ("Today is June 18th and it is Muiriel's birthday!", "¡Hoy es 18 de junio y es el cumpleaños de Muiriel!"),
    ("Today is June 18th and it is Muiriel's birthday!", "¡Hoy es el 18 de junio y es el cumpleaños de Muiriel!"),
    ("Muiriel is 20 now.", "Ahora, Muiriel tiene 20 años."),
    ("Muiriel is 20 now.", "Muiriel tiene 20 años ahora."),
    ('The password is "Muiriel".', 'La contraseña es "Muiriel".'),
    ("I will be back soon.", "Volveré pronto."),
    ("I will be back soon.", "Vuelvo en seguida."),
    ("I will be back soon.", "Yo regresaré pronto."),
]
FOLDED = [
    ("let s try something", "intentemos algo"),
    ("i have to go to sleep", "tengo que irme a dormir"),
    ("today is june th and it is muiriel s birthday", "hoy es de junio y es el cumplea os de muiriel"),
    ("today is june th and it is muiriel s birthday", "hoy es el de junio y es el cumplea os de muiriel"),
    ("muiriel is now", "ahora muiriel tiene a os"),
    ("muiriel is now", "muiriel tiene a os ahora"),
    ("the password is muiriel", "la contrase a es muiriel"),
    ("i will be back soon", "volvere pronto"),
    ("i will be back soon", "vuelvo en seguida"),
    ("i will be back soon", "yo regresare pronto"),
]


def test_the_first_ten_rows_fold_as_the_notebook_prints_them() -> None:
    assert [(ascii_fold(source), ascii_fold(target)) for source, target in RAW] == FOLDED


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
