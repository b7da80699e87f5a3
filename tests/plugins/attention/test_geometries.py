"""Heads, widths and scale of each attention style, and errors for inconsistent sizes."""

import pytest

from headtohead import HeadToHeadError
from headtohead.plugins.registry import current
from headtohead.schema.run_config import ModelConfig

MODEL = ModelConfig(d_model=24, heads=4)

D, H = MODEL.d_model, MODEL.heads
SPLIT, HALF = 4 * D * D, 2 * D * D
EXPECTED = {
    "independent-heads": ({}, (4, 4, 24, 24, 24), H * SPLIT),
    "single-head": ({}, (1, 1, 24, 24, 24), SPLIT),
    "grouped-query": ({"kv_heads": 2}, (4, 2, 6, 6, 6), HALF + 2 * D * 2 * (D // H)),
    "free-geometry": (
        {"key_width": 5, "value_width": 7, "kv_heads": 1},
        (4, 1, 5, 7, 5),
        D * (H * 5 + 1 * 5 + 1 * 7 + H * 7),
    ),
    "embedding-softmax": ({}, (1, 1, 24, 24, 1), None),
    "multi-query": ({}, (4, 1, 6, 6, 6), HALF + 2 * D * (D // H)),
    "qk-norm": ({}, (4, 4, 6, 6, 1), SPLIT),
    "differential": ({}, (4, 4, 6, 12, 6), SPLIT),
    "linear": ({}, (4, 4, 6, 6, 1), SPLIT),
    "uniform": ({}, (4, 4, 0, 6, 1), HALF),
    "random": ({}, (4, 4, 0, 6, 1), HALF),
    "gated": ({"kv_heads": 2}, (4, 2, 6, 6, 6), HALF + 2 * D * 2 * (D // H)),
    "gated-delta": ({}, (4, 4, 8, 6, 6), None),
    "multi-head-latent": ({"rotary_width": 3}, (4, 4, 9, 6, 9), None),
}
"""Options; heads, key/value heads, widths and the square of the inverse scale; weights of the projections.

All other styles have those of split heads.
"""


def geometry(name, options, model=MODEL):
    style = current().attention(name)
    return style.geometry(style.Options(**options), model)


@pytest.mark.parametrize("name", sorted(current().entries["attention"]))
def test_geometry_and_number_of_weights_equal_those_of_the_paper(name):
    options, (*sizes, scaled_by), weights = EXPECTED.get(name, ({}, (4, 4, 6, 6, 6), SPLIT))
    found = geometry(name, options)
    assert [found.heads, found.kv_heads, found.key_width, found.value_width] == sizes
    assert found.scale == pytest.approx(scaled_by**-0.5, rel=1e-15)
    assert weights is None or found.parameters(D, bias=False) == weights


REFUSED = [
    ("split-heads", {}, ModelConfig(d_model=10, heads=4), "got 10 and 4"),
    ("grouped-query", {"kv_heads": 3}, MODEL, "got 3 and 4"),
    ("differential", {}, ModelConfig(d_model=15, heads=3), "got 3 and 15"),
]


@pytest.mark.parametrize(("name", "options", "model", "sizes"), REFUSED)
def test_inconsistent_sizes_are_refused(name, options, model, sizes):
    with pytest.raises(HeadToHeadError, match=f"^{name} needs .*, {sizes}$"):
        geometry(name, options, model)
