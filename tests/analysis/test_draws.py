"""Comparisons in a study in which every seed has its own draw of the data."""

import pytest

from headtohead.analysis.uncertainty import IN_DRAWS
from headtohead.report.remarks import remarks
from made.fake_study import CEILING


def drawn_study(run_data=lambda axes, seed: {"data_hash": f"{seed:064x}"}):
    """Return the options of a study of two encodings whose runs have the data of ``run_data``."""
    config = {"data": {"seed": "per-run"}}
    return {
        "axes": {"positional": ["sinusoidal", "rotary"]},
        "config": lambda axes: config,
        "run_data": run_data,
    }


def test_losses_of_different_data_within_a_seed_are_not_compared(analysed):
    def run_data(axes, seed):
        return {"data_hash": f"{seed + 100 * (seed == 3 and axes['positional'] == 'rotary'):064x}"}

    analysis = analysed(**drawn_study(run_data), primary="test/loss")
    (contrast,) = analysis.families.variants.contrasts
    assert contrast.reason == "losses are not comparable: vocabularies differ"
    assert not analysis.frames.same_data(["sinusoidal", "rotary"])


def test_the_interval_over_seeds_is_that_with_draws_and_sentences(analysed):
    analysis = analysed(**drawn_study())
    found = analysis.uncertainty
    assert (found.has_draws, found.reason) == (True, IN_DRAWS)
    assert all(row.with_sentences is None for row in found.contrasts)
    assert any(
        remark.text.startswith("Each seed has a new draw of the data")
        for remark in remarks(analysis)
    )


@pytest.mark.slow
def test_the_upper_bound_of_one_draw_is_not_applied_to_all(analysed):
    assert analysed(**drawn_study()).upper_bound is None
    assert analysed().upper_bound == CEILING
