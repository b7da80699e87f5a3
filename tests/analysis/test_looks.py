"""Verdicts of a study with planned looks, and the status of its looks."""

import dataclasses
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headtohead.analysis.findings import rules
from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.report import setup
from headtohead.report.content import Report
from headtohead.storage.experiment import LooksRecord
from headtohead.storage.frames import Frames, load_frames
from headtohead_judge.looks import Looks

Analysed = Callable[..., Analysis]
EARLY, LATE = "2020-01-01T00:00:00Z", "2090-01-01T00:00:00Z"


def with_looks(
    frames: Frames, *seeds: int, taken: tuple[int, ...] = (6,), since: str = EARLY
) -> Frames:
    looks = LooksRecord(seeds=seeds, taken=taken, since=since)
    return dataclasses.replace(frames, record=frames.record.model_copy(update={"looks": looks}))


@pytest.mark.slow
def test_every_interval_has_the_level_of_the_looks(quickstart: Path) -> None:
    looks = Looks((6, 12, 18))
    frames = load_frames(quickstart)
    fixed, sequential = Analysis(frames), Analysis(with_looks(frames, 6, 12, 18))
    for plain, family in zip(fixed.families, sequential.families, strict=True):
        for alone, contrast in zip(plain.contrasts, family.contrasts, strict=True):
            if alone.paired is None:
                continue
            assert contrast.level == pytest.approx(looks.level(alone.level))
            adjusted = 1 - (1 - looks.adjusted(alone.paired.p)) ** family.tested
            assert contrast.judgement.adjusted_p == pytest.approx(adjusted)
            assert contrast.detected == (adjusted <= 0.05)


def status_of(frames: Frames) -> LooksStatus:
    status = Analysis(frames).looks
    assert status is not None
    return status


def test_a_study_goes_on_while_a_main_contrast_is_inconclusive(quickstart: Path) -> None:
    frames = with_looks(load_frames(quickstart), 6, 12)
    status = status_of(frames)
    assert status.next_seeds == 12
    main = Analysis(frames).main_contrasts
    assert list(status.undecided) == [contrast.name for contrast in main if contrast.is_undecided]
    last = status_of(with_looks(frames, 3, 6, taken=(3, 6)))
    assert last.undecided
    assert last.next_seeds is None


def test_a_study_stops_at_a_look_without_an_inconclusive_contrast(analysed: Analysed) -> None:
    def score(axes: Mapping[str, str], seed: int) -> float:
        seed += len(axes["positional"])
        return 0.01 * seed * seed % 0.03 + (0.9 if axes["positional"] == "none" else 0.1)

    analysis = Analysis(
        with_looks(analysed(axes={"positional": ["sinusoidal", "none"]}, score=score).frames, 6, 12)
    )
    assert [contrast.verdict for contrast in analysis.families.variants.contrasts] == ["better"]
    assert analysis.looks is not None
    assert (analysis.looks.next_seeds, analysis.looks.undecided) == (None, ())
    assert any("1 of 2 looks taken: stopped" in remark.text for remark in rules.find(analysis))


def test_a_study_stops_without_a_decision_if_its_contrasts_cannot_be_tested(
    analysed: Analysed,
) -> None:
    axes, states = {"positional": ["sinusoidal", "rotary"]}, {("rotary", 2): "DIVERGED"}
    frames = analysed(axes=axes, seeds=(1, 2, 3), states=states, one_at_a_time=True).frames
    analysis = Analysis(with_looks(frames, 3, 6, taken=(3,)))
    assert analysis.looks is not None
    assert (analysis.looks.undecided, len(analysis.looks.untested)) == ((), 1)
    assert any(
        remark.text.endswith("stopped; 1 contrast cannot be tested.")
        for remark in rules.find(analysis)
    )
    assert setup.statistics_section(Report(analysis)).lines == [setup.SEVERAL_SEEDS]


def test_equal_differences_in_few_seeds_are_undecided(analysed: Analysed) -> None:
    axes = {"positional": ["sinusoidal", "none"]}
    frames = analysed(
        axes=axes, score=lambda axes, seed: float(axes["positional"] == "none"), seeds=(1, 2, 3)
    ).frames
    assert status_of(with_looks(frames, 3, 6, taken=(3,))).next_seeds == 6


def test_a_study_does_not_wait_for_interactions(analysed: Analysed) -> None:
    frames = analysed(
        axes={"positional": ["sinusoidal", "none"], "heads": [2, 4]},
        score=lambda axes, seed: (
            0.1 + 0.4 * (axes["positional"] == "none") + 0.2 * (axes["heads"] == 4)
            + random.Random(f"{axes}{seed}").gauss(0, 0.002)
        ),
        interactions=True,
    ).frames  # fmt: skip
    analysis = Analysis(with_looks(frames, 6, 12))
    assert [contrast.detected for contrast in analysis.main_contrasts] == [True, True]
    assert [contrast.is_undecided for contrast in analysis.families.interactions.contrasts] == [
        True
    ]
    assert (status_of(analysis.frames).next_seeds, status_of(analysis.frames).undecided) == (
        None,
        (),
    )


def test_a_look_with_missing_runs_is_not_taken(messy: Path) -> None:
    analysis = Analysis(with_looks(load_frames(messy), 3, 6, taken=(3, 6)))
    assert analysis.looks is not None
    assert (analysis.looks.taken, analysis.looks.complete) == ((3,), False)


@pytest.mark.parametrize(("seeds", "taken"), [((6, 12), (6,)), ((), ())])
def test_looks_that_are_changed_after_results_existed_are_labelled(
    quickstart: Path, seeds: tuple[int, ...], taken: tuple[int, ...]
) -> None:
    def is_late(**since: str) -> bool:
        found = rules.find(
            Analysis(with_looks(load_frames(quickstart), *seeds, taken=taken, **since))
        )
        return any(
            "changed after results existed, on 2090-01-01" in remark.text for remark in found
        )

    assert not is_late()
    assert is_late(since=LATE)
