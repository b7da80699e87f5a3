"""Heads, widths and scale of each attention style, and errors for inconsistent sizes."""

import pytest

from headtohead import HeadToHeadError
from headtohead.config.builder import complete_model
from headtohead.plugins.registry import current
from headtohead.schema.run_config import ModelInput

MODEL = ModelInput(d_model=24, heads=4)
STYLES = current().entries["attention"]

EXPECTED = {
    "split-heads": ({}, (4, 4, 6, 6, 6)),
    "independent-heads": ({}, (4, 4, 24, 24, 24)),
    "single-head": ({}, (1, 1, 24, 24, 24)),
    "grouped-query": ({"kv_heads": 2}, (4, 2, 6, 6, 6)),
    "free-geometry": ({"key_width": 5, "value_width": 7, "kv_heads": 1}, (4, 1, 5, 7, 5)),
    "embedding-softmax": ({}, (1, 1, 24, 24, 1)),
    "multi-query": ({}, (4, 1, 6, 6, 6)),
    "qk-norm": ({}, (4, 4, 6, 6, 1)),
    "talking-heads": ({}, (4, 4, 6, 6, 6)),
    "differential": ({}, (4, 4, 6, 12, 6)),
    "sigmoid": ({}, (4, 4, 6, 6, 6)),
    "linear": ({}, (4, 4, 6, 6, 1)),
    "uniform": ({}, (4, 4, 0, 6, 1)),
    "random": ({}, (4, 4, 0, 6, 1)),
}


def geometry(name, options, model=MODEL):
    style = current().attention(name)
    return style.geometry(style.Options(**options), complete_model(model))


@pytest.mark.parametrize("name", EXPECTED)
def test_geometry_equals_that_of_the_paper(name):
    options, (heads, kv_heads, key_width, value_width, scaled_by) = EXPECTED[name]
    found = geometry(name, options)
    assert (found.heads, found.kv_heads) == (heads, kv_heads)
    assert (found.key_width, found.value_width) == (key_width, value_width)
    assert found.scale == pytest.approx(scaled_by**-0.5, rel=1e-15)


@pytest.mark.parametrize("name", sorted(name for name, style in STYLES.items() if style.entry.projects))
def test_parameter_counts_of_projections_equal_the_catalogue(name):
    """Weights without biases: 4d² split and single, 4h·d² independent, 2d² + 2d·g·d_k grouped.

    Half as many without queries and keys.
    """
    d, h = 24, 4
    expected = {
        "split-heads": 4 * d * d,
        "single-head": 4 * d * d,
        "independent-heads": 4 * h * d * d,
        "grouped-query": 2 * d * d + 2 * d * 2 * (d // h),
        "free-geometry": d * (h * 5 + 1 * 5 + 1 * 7 + h * 7),
        "multi-query": 2 * d * d + 2 * d * (d // h),
        **dict.fromkeys(("qk-norm", "talking-heads", "differential", "sigmoid", "linear"), 4 * d * d),
        **dict.fromkeys(("uniform", "random"), 2 * d * d),
    }
    found = geometry(name, EXPECTED[name][0] if name in EXPECTED else {})
    assert found.parameters(d, bias=False) == expected[name]


REFUSED = {
    "split heads that do not divide the width": (
        "split-heads",
        {},
        ModelInput(d_model=10, heads=4),
        r"^split-heads needs d_model to be a multiple of heads, got 10 and 4$",
    ),
    "groups that do not divide the heads": (
        "grouped-query",
        {"kv_heads": 3},
        MODEL,
        r"^grouped-query needs kv_heads to divide heads and heads to divide d_model, "
        r"got 3, 4 and 24$",
    ),
    "differential maps that make no pairs": (
        "differential",
        {},
        ModelInput(d_model=15, heads=3),
        r"^differential needs an even number of heads, and d_model to be a multiple of it, "
        r"got 3 and 15$",
    ),
}


@pytest.mark.parametrize(("name", "options", "model", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_errors_name_inconsistent_sizes(name, options, model, message):
    with pytest.raises(HeadToHeadError, match=message):
        geometry(name, options, model)
