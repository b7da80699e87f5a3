"""Every pitfall has a measurement, and every recipe's pitfalls are measured on the recipe."""

from __future__ import annotations

import ast
import inspect

import pytest

from headtohead.planning import pitfalls
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.registry import current
from headtohead_notebooks.pitfalls.measurements import MEASUREMENTS, measure_pitfall

RECIPES = ["scratch-en-fr", "architecture-en-de", "slides-en-fr", "by-hand-en-fr"]


def pitfall_names() -> set[str]:
    """Return the name in every rule (condition, name, field, consequence) of the file that defines them."""
    tree = ast.parse(inspect.getsource(pitfalls))
    of_styles = {name for style in current().entries["attention"] for name in current().attention(style).pitfalls}
    return of_styles | {
        node.elts[1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple) and len(node.elts) == 4 and isinstance(node.elts[1], ast.Constant)
    }


def test_exactly_the_defined_pitfalls_have_a_measurement() -> None:
    assert {"source ignored", "targets not shifted"} <= pitfall_names()
    assert set(MEASUREMENTS) == pitfall_names()


@pytest.mark.parametrize("name", RECIPES)
def test_every_pitfall_of_a_recipe_is_measured_on_it(recipe, name) -> None:
    case = recipe(name)
    defined = find_pitfalls(case.config, current())
    assert defined
    for pitfall in defined:
        measured = measure_pitfall(pitfall.name, case)
        assert measured, pitfall.name
        assert all(fact.measured and fact.pitfall == pitfall.name for fact in measured)
        assert all(fact.sentence and fact.numbers for fact in measured)


def test_without_the_data_file_only_the_pitfalls_of_the_model_are_measured(recipe) -> None:
    case = recipe("tatoeba-en-es", *CUT)
    facts = {pitfall.name: measure_pitfall(pitfall.name, case) for pitfall in find_pitfalls(case.config, current())}
    for name in ("nothing held out", "letters lost"):
        (fact,) = facts[name]
        assert not fact.measured
        assert fact.sentence.startswith("not measured: no file: name one of tatoeba with --set")
    assert all(fact.measured for fact in facts["positions by batch row"])


CUT = ("model.d_model=16", "model.heads=2", "model.layers=1", "model.d_ff=32")
