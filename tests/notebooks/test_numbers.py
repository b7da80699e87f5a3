"""Numbers in sentences: every name must be a measured number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headtohead_notebooks.page.content import NotebookPitfall
from headtohead_notebooks.page.descriptions import NOTEBOOKS, PITFALL_TEXTS, Notebook
from headtohead_notebooks.page.measured_pitfalls import MeasuredPitfall
from headtohead_notebooks.page.numbers import fill
from headtohead_notebooks.pitfalls.measurements import MEASUREMENTS


def test_a_sentence_is_filled_with_its_numbers() -> None:
    numbers = {"rows": 6482.0, "share": 0.0525, "change": 0.25, "one": 1, "more": 2}
    assert fill("{rows:count} rows, {share:percent},\n  {change}", numbers) == ("6,482 rows, 5.2 %, 0.25")
    assert fill("{one:counted|word} {one:is|are} and {more:counted|word} {more:is|are}", numbers) == (
        "1 word is and 2 words are"
    )
    with pytest.raises(KeyError, match="missing"):
        fill("{missing}", {"other": 1})


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.recipe)
def test_every_pitfall_has_a_text_with_its_numbers_if_the_data_is_available(
    notebook: Notebook, measured: Callable[[str], dict[str, MeasuredPitfall]]
) -> None:
    assert PITFALL_TEXTS.keys() == MEASUREMENTS.keys()
    for name, measurement in measured(notebook.recipe).items():
        pitfall = NotebookPitfall(measurement, PITFALL_TEXTS[name])
        consequence = measurement.pitfall.consequence
        assert (pitfall.effect == f"{consequence[0].upper()}{consequence[1:]}.") == (not measurement.numbers)
        assert "{" not in pitfall.effect
        measured_all = all(fact.measured for fact in measurement.facts)
        assert measured_all or pitfall.missing.startswith("Not measured: no file")
