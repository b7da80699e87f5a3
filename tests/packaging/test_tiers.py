"""The markers that divide the tests into the default tier and the slow tier."""

from __future__ import annotations

import pytest


@pytest.mark.default_cases(number=2)
@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_cases_after_the_first_of_a_table_are_slow(number: int, letter: str, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("slow") is not None) == (number == 3)


@pytest.mark.default_cases(1)
@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize("number", [1, 2])
def test_a_limit_without_a_name_holds_for_every_table(number: int, letter: str, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("slow") is not None) == ((number, letter) != (1, "a"))
