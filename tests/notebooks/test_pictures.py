"""The pictures show the measurements, and the texts of the page use measured numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headtohead_notebooks.page.content import NotebookPitfall
from headtohead_notebooks.page.descriptions import NOTEBOOKS, PITFALL_TEXTS
from headtohead_notebooks.page.measured_pitfalls import MeasuredPitfall
from headtohead_notebooks.pitfalls.measurements import MEASUREMENTS

Pitfalls = Callable[[str], dict[str, MeasuredPitfall]]


def picture(measured: Pitfalls, recipe: str, pitfall: str) -> dict[str, Any]:
    found = measured(recipe)[pitfall].picture
    assert found is not None
    return dict(found)


def shown(panel: dict[str, Any]) -> list[list[str]]:
    return [[cell["text"] for cell in line] for line in panel["cells"]]


def words(row: dict[str, Any]) -> list[str]:
    return [cell["text"] for cell in row["cells"]]


def test_every_pitfall_is_explained() -> None:
    assert PITFALL_TEXTS.keys() == MEASUREMENTS.keys()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.recipe)
def test_every_sentence_has_its_numbers_if_the_data_is_available(notebook, measured) -> None:
    for name, measurement in measured(notebook.recipe).items():
        pitfall = NotebookPitfall(measurement, PITFALL_TEXTS[name])
        consequence = measurement.pitfall.consequence
        assert (pitfall.effect == f"{consequence[0].upper()}{consequence[1:]}.") == (not measurement.numbers)
        assert "{" not in pitfall.effect
        measured_all = all(fact.measured for fact in measurement.facts)
        assert measured_all or pitfall.missing.startswith("Not measured: no file")


def test_later_words_change_logits_if_the_second_attention_attends_to_the_decoder(measured: Pitfalls) -> None:
    visible, fixed = picture(measured, "slides-en-fr", "future not masked")["panels"]
    for row, (line, right) in enumerate(zip(shown(visible), shown(fixed), strict=True)):
        for column, (text, sound) in enumerate(zip(line, right, strict=True)):
            assert float(text) > 0.01
            assert (float(sound) > 0.01) == (column >= row)


def test_a_mask_on_embeddings_leaves_the_diagonal(measured: Pitfalls) -> None:
    masked, fixed = picture(measured, "by-hand-en-fr", "mask on embeddings")["panels"]
    for row, (line, right) in enumerate(zip(shown(masked), shown(fixed), strict=True)):
        for column, (text, sound) in enumerate(zip(line, right, strict=True)):
            own = row == column and row > 0
            assert (float(text) > 0.1) == own
            assert float(text) > 0.1 or float(text) < 1e-7
            assert (float(sound) > 0.01) == (column >= row)


def test_positions_by_row_are_equal_and_positions_by_time_differ_in_a_sentence(measured: Pitfalls) -> None:
    written, fixed = picture(measured, "tatoeba-en-es", "positions by batch row")["panels"]
    for row, (line, right) in enumerate(zip(written["rows"], fixed["rows"], strict=True)):
        assert {cell["hue"] for cell in line["cells"]} == {row}
        assert [cell["hue"] for cell in right["cells"]] == list(range(len(right["cells"])))
