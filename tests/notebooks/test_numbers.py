"""Numbers in sentences: every name must be a measured number."""

from __future__ import annotations

import pytest

from headtohead_notebooks.page.numbers import fill, plain


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.811, "0.81"),
        (0.1, "0.1"),
        (3.7146e-9, "4e-9"),
        (7.77e-16, "8e-16"),
        (0.0001, "1e-4"),
        (12.0, "12"),
        (1e-3, "0.001"),
    ],
)
def test_a_number_has_two_digits_or_a_power_of_ten(value: float, shown: str) -> None:
    assert plain(value) == shown


def test_a_sentence_is_filled_with_its_numbers() -> None:
    numbers = {"rows": 6482.0, "share": 0.0525, "change": 0.25, "one": 1, "more": 2}
    assert fill("{rows:count} rows, {share:percent},\n  {change}", numbers) == ("6,482 rows, 5.2 %, 0.25")
    assert fill("{one:counted|word} {one:is|are} and {more:counted|word} {more:is|are}", numbers) == (
        "1 word is and 2 words are"
    )


def test_a_number_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="missing"):
        fill("{missing}", {"other": 1})
