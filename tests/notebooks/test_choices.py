"""The choices of the notebooks in plain words agree with the notebooks' texts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headtohead.plugins.registry import current
from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.page.descriptions import NOTEBOOKS
from headtohead_notebooks.page.design_choices import ChoiceRow, choice_rows, unique_choices

INDICES = {notebook.recipe: index for index, notebook in enumerate(NOTEBOOKS)}


@pytest.fixture(scope="module")
def rows() -> tuple[ChoiceRow, ...]:
    configs = [recipe_config(notebook.recipe, current()) for notebook in NOTEBOOKS]
    return choice_rows(configs, [notebook.data for notebook in NOTEBOOKS], current())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("vocabulary", ["fixed tables", "by frequency", "<unk>", "fixed tables", "position of a word"]),
        (
            "boundary tokens",
            ["source: <eos>", "no boundary", "both sides: <sos>", "no boundary", "source: no boundary"],
        ),
        ("padding", ["longest of the data", "always to 100", "truncated to 128", "none", "none"]),
        ("embedding scale", ["1", "1", "√d_model", "1", "1"]),
        ("positions", ["sinusoidal", "sinusoidal", "row in the batch", "sinusoidal", "sinusoidal"]),
        (
            "memory of the decoder's second attention",
            ["encoder", "encoder", "encoder", "the decoder itself", "encoder"],
        ),
        (
            "d_model / heads / layers / d_ff",
            ["10 / 1 / 1 / 40", "512 / 8 / 6 / 2048", "512 / 8 / 6 / 2048", "128 / 8 / 2 / 512", "6 / 2 / 1 / 24"],
        ),
        ("feed-forward", ["ReLU", "ReLU", "ReLU", "ReLU", "for the whole model"]),
        ("LayerNorm", ["after", "after", "a final one", "after", "after"]),
        ("masked in the encoder", ["padding", "padding", "padding", "none", "none"]),
        ("masked in the decoder", ["padding and future"] * 3 + ["future", "future"]),
        ("masked in cross-attention", ["padding", "padding", "padding", "no cross-attention", "none"]),
        ("mask value", ["-1e9 on scores", "-inf", "-1e9 on scores", "-inf", "-1e9 on embeddings"]),
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
        ("decoding", ["at most 5", "none", "at most 128", "one pass over zeros", "reference as decoder input"]),
    ],
)
def test_each_choice_equals_that_of_the_text(rows: tuple[ChoiceRow, ...], row: str, words: Sequence[str]) -> None:
    (values,) = (candidate.values for candidate in rows if candidate.name == row)
    for value, expected in zip(values, words, strict=True):
        assert expected in value


def test_a_unique_choice_is_made_by_no_other_notebook(rows: tuple[ChoiceRow, ...]) -> None:
    values = {row.name: row.values for row in rows}
    for index in range(len(NOTEBOOKS)):
        for name, value in unique_choices(rows, index):
            assert values[name].count(value) == 1


def test_the_unusual_choice_of_each_notebook_is_unique(rows: tuple[ChoiceRow, ...]) -> None:
    odd = {
        "architecture-en-de": "padding",
        "tatoeba-en-es": "positions",
        "slides-en-fr": "memory of the decoder's second attention",
        "by-hand-en-fr": "mask value",
    }
    for recipe, name in odd.items():
        assert name in dict(unique_choices(rows, INDICES[recipe]))
