"""The choices of the notebooks in plain words agree with the notebooks' texts."""

from __future__ import annotations

import pytest

from headtohead.plugins.registry import current
from headtohead.testing.checks.entries import recipe_config
from headtohead_notebooks.page.descriptions import NOTEBOOKS
from headtohead_notebooks.page.design_choices import ChoiceRow, choice_rows, unique_choices


@pytest.fixture(scope="module")
def rows() -> tuple[ChoiceRow, ...]:
    configs = [recipe_config(notebook.recipe, current()) for notebook in NOTEBOOKS]
    return choice_rows(configs, [notebook.data for notebook in NOTEBOOKS], current())


def test_a_unique_choice_is_made_by_no_other_notebook(rows: tuple[ChoiceRow, ...]) -> None:
    values = {row.name: row.values for row in rows}
    for index in range(len(NOTEBOOKS)):
        for name, value in unique_choices(rows, index):
            assert values[name].count(value) == 1
