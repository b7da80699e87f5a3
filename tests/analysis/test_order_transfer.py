"""Order transfer between sizes: counts of made scores, the range over seeds, and the expanded design."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from headtohead.analysis.order_transfer import (
    OrderCounts,
    compare_orders,
    order_transfer,
    resampled_range,
)
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


ENCODINGS = ["none", "sinusoidal", "rotary", "alibi", "learned"]
SIZES = ["d_model 16", "d_model 32"]


@pytest.fixture
def transfer_of(analysed):
    """Return a function that returns the order transfer of five encodings at two sizes."""

    def transfer(score):
        axes = {"positional": ENCODINGS, "size": SIZES}
        analysis = analysed(axes=axes, score=score, question="Which positional encoding?")
        (found,) = order_transfer(analysis)
        return found

    return transfer


def test_pairs_with_the_same_order_and_verdict_are_counted(transfer_of):
    """At the large size, two far encodings change their order, and two near ones are far apart."""
    small = {"none": 0.1, "sinusoidal": 0.2, "rotary": 0.3, "alibi": 0.4, "learned": 0.4001}
    large = {"none": 0.1, "sinusoidal": 0.3, "rotary": 0.2, "alibi": 0.4, "learned": 0.5}

    def score(axes, seed):
        mean = (small if axes["size"] == SIZES[0] else large)[axes["positional"]]
        noise = seed * (1 + ENCODINGS.index(axes["positional"])) % 7  # has the same mean for all
        return mean + 0.001 * noise

    found = transfer_of(score)
    assert (found.small, found.large, found.num_variants) == (*SIZES, 5)
    assert found.counts == OrderCounts(
        pairs=10, same_order=9, same_verdict=8, same_direction=8, reversed=1
    )
    assert found.order_range.low <= 0.9 <= found.order_range.high


def test_equal_variants_have_no_verdict_where_paired_t_tests_find_some(transfer_of):
    """Simultaneous intervals of the ten pairs of a size contain 0; unadjusted tests find differences at each."""
    noise = np.random.default_rng(9).normal(scale=0.01, size=(2, 5, 7))

    def scores(size, encoding):
        return 0.5 + noise[size, encoding]

    def score(axes, seed):
        size = SIZES.index(axes["size"])
        return float(scores(size, ENCODINGS.index(axes["positional"]))[seed])

    unadjusted = [0, 0]
    for size in (0, 1):
        for first, second in itertools.combinations(range(5), 2):
            test = stats.ttest_rel(scores(size, first)[1:], scores(size, second)[1:])
            unadjusted[size] += test.pvalue <= 0.05
    assert min(unadjusted) > 0
    counts = transfer_of(score).counts
    assert (counts.pairs, counts.same_verdict, counts.same_direction, counts.reversed) == (
        10,
        10,
        0,
        0,
    )
    assert counts.same_order < 10


def test_sizes_have_the_order_of_the_file_if_the_first_variant_of_a_size_is_not_ranked(
    analysed,
) -> None:
    sizes = ["d_model 16", "d_model 32", "d_model 64"]
    analysis = analysed(
        axes={"positional": ENCODINGS, "size": sizes},
        score=lambda axes, seed: (
            0.1 + 0.1 * ENCODINGS.index(axes["positional"]) + 0.01 * (seed % 3)
        ),
        states={("none-d_model 16", 3): "FAILED"},
        question="Which positional encoding?",
    )
    transfers = order_transfer(analysis)
    assert [(each.small, each.large) for each in transfers] == list(itertools.pairwise(sizes))
    assert [each.num_variants for each in transfers] == [4, 5]


def test_the_range_resamples_seeds_with_all_their_variants():
    """Seeds with opposite orders at the large size: the resampled mean has one order or the other."""
    small = [-1.0, -1.0, -1.5]
    large = [-3.0, 1.0, 1.0]
    interval = resampled_range(np.array([[small], [large]]))
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_equal_means_have_no_order():
    means = np.array([[0.0, -0.7, -0.7], [-0.2, 0.4, 0.6]])
    counts = compare_orders(means, np.zeros((2, 3)))
    assert (counts.pairs, counts.same_order) == (2, 0)
    assert compare_orders(means[:, :1], np.zeros((2, 1))) is None


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
