"""The choices of the notebooks in plain words, against the notebooks' texts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headtohead.plugins.registry import current
from headtohead.tools.notebooks.choices import Choice, choices, own
from headtohead.tools.notebooks.known import NOTEBOOKS
from headtohead.tools.pitfalls.entries import recipe_config

PLACES = {one.recipe: place for place, one in enumerate(NOTEBOOKS)}


@pytest.fixture(scope="module")
def rows() -> tuple[Choice, ...]:
    configs = [recipe_config(one.recipe, current()) for one in NOTEBOOKS]
    return choices(configs, [one.data for one in NOTEBOOKS], current())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("vocabulary", ["fixed tables", "by frequency", "<unk>", "fixed tables", "place in its"]),
        (
            "boundary tokens",
            ["source: <eos>", "no boundary", "both sides: <sos>", "no boundary", "source: no boundary"],
        ),
        ("padding", ["longest of the data", "always to 100", "cut at 128", "none", "none"]),
        ("embedding scale", ["1", "1", "√d_model", "1", "1"]),
        ("positions", ["sinusoidal", "sinusoidal", "row in the batch", "sinusoidal", "sinusoidal"]),
        ("second attention of the decoder reads", ["encoder", "encoder", "encoder", "the decoder itself", "encoder"]),
        (
            "d_model / heads / layers / d_ff",
            ["10 / 1 / 1 / 40", "512 / 8 / 6 / 2048", "512 / 8 / 6 / 2048", "128 / 8 / 2 / 512", "6 / 2 / 1 / 24"],
        ),
        ("feed-forward", ["ReLU", "ReLU", "ReLU", "ReLU", "serve every place"]),
        ("LayerNorm", ["after", "after", "a last one", "after", "after"]),
        ("encoder mask hides", ["padding", "padding", "padding", "none", "none"]),
        ("decoder mask hides", ["padding and future"] * 3 + ["future", "future"]),
        ("cross mask hides", ["padding", "padding", "padding", "no cross-attention", "none"]),
        ("masked", ["-1e9 on scores", "-inf", "-1e9 on scores", "-inf", "-1e9 on embeddings"]),
        ("embedding tables", ["5,000 rows", "each", "each", "one table for both", "each"]),
        ("loss", ["shifted by one"] * 3 + ["none", "not shifted"]),
        ("optimiser", ["Adam 0.001, betas (0.9, 0.98), eps 1e-9", "Adam 1e-4", "Adam 1e-4", "none", "Adam 0.001"]),
        ("trained", ["all", "all", "all", "nothing", "only"]),
        (
            "epochs, batch",
            [
                "1 epoch, batches of 20",
                "10 epochs, batches of 32",
                "10 epochs, batches of 64",
                "never trained",
                "1 step",
            ],
        ),
        ("decoding", ["at most 5", "none", "at most 128", "non-autoregressive", "reads the reference"]),
    ],
)
def test_each_choice_says_what_the_text_has(rows: tuple[Choice, ...], row: str, words: Sequence[str]) -> None:
    (found,) = (one for one in rows if one.name == row)
    for one, wanted in zip(found.words, words, strict=True):
        assert wanted in one


def test_what_a_notebook_chose_alone_is_shared_by_no_other(rows: tuple[Choice, ...]) -> None:
    told = {row.name: row.words for row in rows}
    for place in range(len(NOTEBOOKS)):
        for name, words in own(rows, place):
            assert [other for other in told[name] if other == words] == [words]


def test_the_odd_choice_of_each_notebook_is_among_its_own(rows: tuple[Choice, ...]) -> None:
    odd = {
        "architecture-en-de": "padding",
        "tatoeba-en-es": "positions",
        "slides-en-fr": "second attention of the decoder reads",
        "by-hand-en-fr": "masked",
    }
    for recipe, name in odd.items():
        assert name in dict(own(rows, PLACES[recipe]))
