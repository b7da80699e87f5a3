"""Stated cost formulas equal counts; a wrong formula is an error that names the sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalogue.costs import CHECKED_AT, count, describe_costs, verify
from headtohead.config.builder import resolve
from headtohead.errors import HeadToHeadError
from headtohead.model.counting import count as count_model
from headtohead.plugins.registry import current, load_registry

BUILT_IN = [entry for entry in load_registry().all() if entry.distribution == "headtohead"]
ATTENTIONS = [entry.name for entry in BUILT_IN if entry.family == "attention"]
POSITIONALS = [entry.name for entry in BUILT_IN if entry.family == "positional"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_built_in_attention_states_a_cost_that_equals_the_counts(name: str) -> None:
    assert verify(current().attention(name), "decoder") >= 3 * (len(CHECKED_AT) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", POSITIONALS)
def test_every_built_in_encoding_costs_nothing_or_states_a_cost_that_equals_the_counts(name: str) -> None:
    encoding = current().positional(name)
    if encoding.cost is None:
        assert set(describe_costs(encoding, "decoder").values()) == {"0"}
    else:
        assert verify(encoding, "decoder") > 0


@pytest.mark.parametrize("quantity", ["parameters", "flops"])
def test_a_wrong_formula_is_an_error(quantity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    style = current().attention("grouped-query")
    assert style.cost is not None
    wrong = getattr(style.cost, quantity) + " + kv_heads - 2"
    monkeypatch.setattr(style, "cost", replace(style.cost, **{quantity: wrong}))
    with pytest.raises(
        HeadToHeadError, match=rf"cost formula {quantity} = .* but counting gives \d+ at L = \d+, d = \d+"
    ):
        verify(style, "decoder")


def test_flops_equal_the_counts_of_a_plan() -> None:
    """The count of a whole model grows with each layer by the formulas of its parts."""
    tokens, width, inner = 7, 24, 40

    def flops(layers: int) -> float:
        model = {"d_model": width, "heads": 4, "d_ff": inner, "encoder_layers": layers}
        config = resolve({"model": model, "train": {"steps": 1}}, current())
        return count_model(config, 11, 13, tokens, tokens).flops_per_token * tokens

    style = current().attention("split-heads")
    counts = count(style, style.Options(), {"d": width, "h": 4, "n": tokens}, "encoder")
    assert counts is not None
    assert counts.flops is not None
    assert flops(3) - flops(2) == counts.flops + 2 * 2 * tokens * width * inner
