"""Comparisons in a study in which every seed has its own draw of the data."""

import pytest

from headtohead.analysis.study import Analysis
from headtohead.analysis.uncertainty import IN_DRAWS
from headtohead.report.remarks import remarks
from headtohead.storage.frames import load_frames

DRAWN = {"data": {"seed": "per-run"}}


def drawn_study(made, tmp_path, run_data=lambda axes, seed: {"data_hash": f"{seed:064x}"}, **changes):
    """Write a study of two encodings whose runs have the data of ``run_data``."""
    study = made.Study(
        axes={"positional": ["sinusoidal", "rotary"]},
        config=lambda axes: DRAWN,
        run_data=run_data,
        maps=False,
        **changes,
    )
    return load_frames(made.write_study(tmp_path, study))


def test_losses_of_different_data_within_a_seed_are_not_compared(made, tmp_path):
    def run_data(axes, seed):
        return {"data_hash": f"{seed + 100 * (seed == 3 and axes['positional'] == 'rotary'):064x}"}

    analysis = Analysis(drawn_study(made, tmp_path, run_data, primary="test/loss"))
    (contrast,) = analysis.families.variants.contrasts
    assert contrast.reason == "losses are not comparable: vocabularies differ"
    assert not analysis.frames.same_data(["sinusoidal", "rotary"])


def test_the_interval_over_seeds_is_that_with_draws_and_sentences(made, tmp_path):
    analysis = Analysis(drawn_study(made, tmp_path))
    found = analysis.uncertainty
    assert (found.has_draws, found.reason) == (True, IN_DRAWS)
    assert all(row.with_sentences is None for row in found.contrasts)
    assert any(remark.text.startswith("Each seed has a new draw of the data") for remark in remarks(analysis))


@pytest.mark.slow
def test_the_upper_bound_of_one_draw_is_not_applied_to_all(made, tmp_path):
    drawn = Analysis(drawn_study(made, tmp_path / "drawn"))
    plain = Analysis(load_frames(made.write_study(tmp_path / "plain", made.Study(maps=False))))
    assert drawn.upper_bound is None
    assert plain.upper_bound == made.CEILING
