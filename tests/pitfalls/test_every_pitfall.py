"""Every pitfall that is named can be shown, and every recipe's pitfalls are measured on it."""

from __future__ import annotations

import ast
import inspect

import pytest
from headtohead.tools.pitfalls.every import EVIDENCE as ALL

from headtohead.planning import pitfalls
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.registry import current
from headtohead.tools.pitfalls import EVIDENCE

RECIPES = ["scratch-en-fr", "architecture-en-de", "slides-en-fr", "by-hand-en-fr"]


def named_faults() -> set[str]:
    """Return the first argument of every ``Fault(...)`` in the file that names them."""
    tree = ast.parse(inspect.getsource(pitfalls))
    return {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fault"
        if isinstance(node.args[0], ast.Constant)
    }


def test_every_named_fault_has_evidence_and_no_other_has() -> None:
    assert {"source ignored", "targets not shifted"} <= named_faults()
    assert set(ALL) == named_faults()


@pytest.mark.parametrize("name", RECIPES)
def test_every_fault_of_a_recipe_is_measured_on_it(recipe, name) -> None:
    case = recipe(name)
    found = find_pitfalls(case.config, current())
    assert found
    for pitfall in found:
        measured = EVIDENCE[pitfall.name].of(case)
        assert measured, pitfall.name
        assert all(fact.measured and fact.pitfall == pitfall.name for fact in measured)
        assert all(fact.sentence and fact.numbers for fact in measured)


def test_what_needs_a_file_is_not_measured_without_it_and_the_rest_is(recipe) -> None:
    case = recipe("tatoeba-en-es", *CUT)
    facts = {pitfall.name: EVIDENCE[pitfall.name].of(case) for pitfall in find_pitfalls(case.config, current())}
    for name in ("nothing held out", "letters lost"):
        (fact,) = facts[name]
        assert not fact.measured
        assert fact.sentence.startswith("not measured: no file: name one of tatoeba with --set")
    assert all(fact.measured for fact in facts["positions by batch row"])


CUT = ("model.d_model=16", "model.heads=2", "model.layers=1", "model.d_ff=32")
