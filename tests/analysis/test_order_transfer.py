"""Order transfer between sizes: counts of made scores, the interval over seeds, and the expanded design."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from headtohead.analysis.order_transfer import compare_orders
from headtohead.config.loading import load_text
from headtohead.errors import HeadToHeadError
from headtohead.planning.design import expand

FILE = """
question: Which attention is best?
base: {data: {dataset: toy-grammar}, train: {steps: 10}, positional: rotary}
design:
  - one_at_a_time: {attention: [gated, exclusive]}
sizes:
  - {model.d_model: 16, train.steps: 10}
  - {model.d_model: 32, train.steps: 20}
"""


def design(text):
    return expand(load_text(text, Path("sizes.yaml")))


def seeds(*means, noise=(-1.0, 0.0, 1.0, 2.5)):
    return [
        [mean + step / 100 for step in np.roll(noise, number)] for number, mean in enumerate(means)
    ]


def all_pairs(values):
    return list(itertools.combinations(range(values.shape[1]), 2))


def test_pairs_with_the_same_order_and_verdict_are_counted():
    small, large = seeds(1.0, 2.0, 3.0, 3.001), seeds(1.0, 3.0, 2.0, 4.0)
    values = np.array([small, large])
    pairs, order, interval, verdicts, over_seeds, detected, opposite = compare_orders(
        values, all_pairs(values)
    )
    # Of six pairs, only the second and third variant change their order; the difference of the third and fourth is
    # without a shown difference at the small size alone.
    assert (pairs, order, verdicts, detected, opposite) == (6, 5, 4, 4, 1)
    assert interval.low <= 5 / 6 <= interval.high
    assert over_seeds.low <= 4 / 6 <= over_seeds.high


def test_the_interval_resamples_seeds_with_all_their_variants():
    """Seeds with opposite orders at the large size: the resampled mean has one order or the other."""
    small = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.5]])
    large = np.array([[0.0, 0.0, 0.0], [3.0, -1.0, -1.0]])
    pairs, order, interval, *_ = compare_orders(np.array([small, large]), [(0, 1)])
    assert (pairs, order) == (1, 1)
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_equal_means_have_no_order():
    """Scores of 0.1 + 0.2 and 0.3 differ by rounding alone."""
    small = np.array([[0.1 + 0.2, 0.3], [0.3, 0.3], [1.0, 1.1]])
    large = np.array([[0.5, 0.6], [0.7, 0.9], [0.2, 0.1]])
    pairs, order, *_ = compare_orders(np.array([small, large]), [(0, 1), (0, 2), (1, 2)])
    assert (pairs, order) == (2, 0)
    assert compare_orders(np.array([small, large]), [(0, 1)]) is None


def test_variants_are_compared_with_the_baseline_of_their_size():
    found = design(FILE)
    assert found.axes == ("attention", "size")
    assert {variant.axes["size"] for variant in found.variants} == {"d_model 16", "d_model 32"}
    widths = {
        variant.slug: (variant.config.model.d_model, variant.config.train.steps)
        for variant in found.variants
    }
    assert sorted(widths.values()) == [(16, 10)] * 3 + [(32, 20)] * 3
    contrasts = found.contrasts()
    assert len(contrasts) == 4
    assert all(widths[contrast.variant] == widths[contrast.against] for contrast in contrasts)


def test_a_product_has_interactions_with_the_size_and_no_contrast_of_sizes():
    text = FILE.replace("one_at_a_time: {", "product: {feed_forward: [relu, gelu], ").replace(
        "[gated", "[split-heads"
    )
    contrasts = design(text).contrasts()
    sides = [contrast for contrast in contrasts if contrast.family == "factor"]
    assert {contrast.effects[0].axis for contrast in sides} == {"feed_forward", "attention"}
    for contrast in sides:
        for left, right in contrast.settings:
            assert left.variant.split("d_model")[1] == right.variant.split("d_model")[1]
    others = {
        frozenset(effect.axis for effect in contrast.effects)
        for contrast in contrasts
        if contrast.family == "interaction"
    }
    assert others == {
        frozenset(pair) for pair in itertools.combinations(("feed_forward", "attention", "size"), 2)
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            ", train.steps: 20}",
            "}",
            "every size sets the same fields; the first one sets model.d_model, train.steps",
        ),
        ("{model.d_model: 32, train.steps: 20}", "{}", "this size sets no field"),
        (
            "attention: [gated",
            "model.d_model: [24], attention: [gated",
            "sizes set this field already",
        ),
        ("model.d_model", "model.d_modle", "did you mean"),
        (
            "model.d_model: 32, train.steps: 20",
            "model.d_model: 16, train.steps: 10",
            "this size is listed twice",
        ),
        (
            "  - one_at_a_time",
            "  - between: {from: {}, to: {positional: none}}\n  - one_at_a_time",
            "between",
        ),
    ],
)
def test_a_wrong_size_is_one_line_with_its_location(old, new, message):
    with pytest.raises(HeadToHeadError, match=message) as error:
        design(FILE.replace(old, new))
    assert str(error.value).startswith("sizes.yaml:")
