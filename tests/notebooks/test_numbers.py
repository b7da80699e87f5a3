"""Numbers in sentences: every name must be a measured number."""

from __future__ import annotations

import pytest

from headtohead_notebooks.page.numbers import fill


def test_a_sentence_is_filled_with_its_numbers() -> None:
    numbers = {"rows": 6482.0, "share": 0.0525, "change": 0.25, "one": 1, "more": 2}
    assert fill("{rows:count} rows, {share:percent},\n  {change}", numbers) == ("6,482 rows, 5.2 %, 0.25")
    assert fill("{one:counted|word} {one:is|are} and {more:counted|word} {more:is|are}", numbers) == (
        "1 word is and 2 words are"
    )


def test_a_number_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="missing"):
        fill("{missing}", {"other": 1})
