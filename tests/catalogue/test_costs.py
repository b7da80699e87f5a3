"""Costs of the catalogue are counted from the entry alone, as the plan counts them in a whole model."""

import pytest

from catalogue.costs import count, describe_costs
from headtohead.config.builder import resolve
from headtohead.model.counting import count as count_model
from headtohead.plugins.registry import find_attention, find_entry


def test_flops_equal_the_counts_of_a_plan() -> None:
    """The count of a whole model grows with each layer by the counts of its parts."""
    tokens, width, inner = 7, 24, 40

    def flops(layers: int) -> float:
        model = {"d_model": width, "heads": 4, "d_ff": inner, "encoder_layers": layers}
        config = resolve({"model": model, "train": {"steps": 1}})
        return count_model(config, 11, 13, tokens, tokens).flops_per_token * tokens

    style = find_attention("split-heads")
    counts = count(style, style.Options(), {"d": width, "h": 4, "n": tokens}, "encoder")
    assert counts is not None
    assert counts.flops is not None
    assert flops(3) - flops(2) == counts.flops + 2 * 2 * tokens * width * inner


@pytest.mark.parametrize(
    ("family", "name", "parameters"),
    [
        ("attention", "split-heads", 4 * 32**2),
        ("attention", "independent-heads", 4 * 32**2 * 4),
        ("positional", "alibi", 0),
    ],
)
def test_described_costs_are_those_of_a_loop_by_hand(
    family: str, name: str, parameters: int
) -> None:
    text = describe_costs(find_entry(family, name).entry, "encoder")["parameters"]
    assert text == (f"{parameters:,} at d = 32, h = 4, L = 2, n = 16" if parameters else "0")
