"""The best variants of a study: there are none while a variant is not ranked."""

import math

import pytest


@pytest.mark.parametrize(
    ("states", "reason"),
    [({}, ""), ({("rotary", 1): "DIVERGED"}, "not all variants are ranked")],
    ids=str,
)
def test_no_variant_is_best_while_one_is_not_ranked(analysed, states, reason) -> None:
    """The variant with a diverged seed could be the best."""
    means = {"sinusoidal": 0.6, "rotary": 0.9, "none": 0.1}
    found = analysed(
        axes={"positional": [*means]},
        score=lambda axes, seed: (
            means[axes["positional"]] + 0.001 * math.sin(7 * seed + len(axes["positional"]))
        ),
        states=states,
    ).best
    assert (bool(found.slugs), found.reason) == (not reason, reason)
