"""Stated cost formulas equal counts; a wrong formula is an error that names the sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from catalogue.costs import CHECKED_AT, count, describe_costs, pretty, verify
from headtohead.config.resolve import complete_model, resolve
from headtohead.errors import HeadToHeadError
from headtohead.model.counting import count as count_model
from headtohead.plugin import Cost
from headtohead.plugins.component import BuildContext
from headtohead.plugins.registry import current, load_registry
from headtohead.schema.run_config import ModelInput

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


@pytest.mark.parametrize("name", POSITIONALS)
def test_the_parameter_count_of_an_encoding_equals_its_weights(name: str) -> None:
    encoding, style = current().positional(name), current().attention("split-heads")
    options = encoding.Options()
    for sizes in CHECKED_AT:
        counts = count(encoding, options, sizes, "decoder")
        geometry = style.geometry(style.Options(), complete_model(ModelInput(d_model=sizes["d"], heads=sizes["h"])))
        context = BuildContext("decoder", sizes["L"], sizes["d"], geometry, [torch.Generator()])
        assert counts is not None
        assert encoding.parameter_count(options, context) == counts.parameters


@pytest.mark.parametrize("quantity", ["parameters", "biases", "flops"])
def test_a_wrong_formula_is_an_error(quantity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    style = current().attention("grouped-query")
    assert style.cost is not None
    wrong = getattr(style.cost, quantity) + " + kv_heads - 2"
    monkeypatch.setattr(style, "cost", replace(style.cost, **{quantity: wrong}))
    with pytest.raises(
        HeadToHeadError, match=rf"cost formula {quantity} = .* but counting gives \d+ at L = \d+, d = \d+"
    ):
        verify(style, "decoder")


@pytest.mark.parametrize("formula", ["4*width", "4*", "4/0"])
def test_a_formula_that_cannot_be_evaluated_is_an_error(formula: str, monkeypatch: pytest.MonkeyPatch) -> None:
    style = current().attention("split-heads")
    monkeypatch.setattr(style, "cost", Cost(formula))
    with pytest.raises(HeadToHeadError, match=r"cannot be evaluated: .*; use d, h, L, n"):
        verify(style, "decoder")


def test_an_entry_without_formulas_is_shown_with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    style = current().attention("split-heads")
    monkeypatch.setattr(style, "cost", None)
    shown = describe_costs(style, "decoder")
    assert shown["parameters"] == "4,096 at d = 32, h = 4, L = 2, n = 16"
    assert shown["biases"] == "128 at d = 32, h = 4, L = 2, n = 16"


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


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("0", "0"),
        ("2*d**2 + 4*d**2/h", "2d² + 4d²/h"),
        ("d - 3*h", "d − 3h"),
        ("2*d**2*kv_heads + kv_heads", "2d²·kv_heads + kv_heads"),
        ("L*h*hidden", "Lh·hidden"),
        ("d*(h + kv_heads)", "d(h + kv_heads)"),
    ],
)
def test_a_formula_is_printed_in_mathematical_notation(formula: str, shown: str) -> None:
    assert pretty(formula) == shown


def test_inconsistent_sizes_are_not_counted() -> None:
    style = current().attention("split-heads")
    assert count(style, style.Options(), {"d": 10, "h": 4, "n": 3}, "decoder") is None
