"""Sizes of stacks are measured once, in a process of their own, and remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from headtohead.api import plan
from headtohead.experiment.stacking import machine, processors, remembered
from headtohead.runs import files, sizes
from headtohead.training.sizing import paying, time_sizes

if TYPE_CHECKING:
    from .conftest import Study


def test_a_size_is_measured_once_and_used_by_the_plan(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H2H_CACHE", str(study.cache / "own"))
    small = {"model": {"d_model": 4, "d_ff": 8}, "train": {"batch_tokens": 32}}
    study.write(base=small, seeds=processors("cpu") + 2)
    found = plan(study.file, runs=study.runs)
    monkeypatch.setattr(sizes, "LEAST_SECONDS", 1e9)
    assert sizes.stack_sizes(found, found.runs, "cpu", study.cache / "own") == {}
    monkeypatch.setattr(sizes, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(sizes, "SHARE", 1e3)
    measured = sizes.stack_sizes(found, found.runs, "cpu", study.cache / "own")
    (members,) = measured.values()
    assert members in {8, 16, 32, 64}, "as many as pay, not as many as this study has"
    assert remembered(study.cache / "own", "cpu") == measured
    path = study.cache / "own" / "stack-sizes.json"
    files.write_json(path, {machine("cpu"): dict.fromkeys(measured, 3)})
    assert set(sizes.stack_sizes(found, found.runs, "cpu", study.cache / "own").values()) == {3}
    assert max(len(stack) for stack in found.stacks) <= 3


def test_time_per_member_falls_where_a_step_is_mostly_overhead(study: Study) -> None:
    study.write(base={"model": {"d_model": 4, "d_ff": 8}, "train": {"batch_tokens": 32}})
    found = plan(study.file, runs=study.runs)
    one = found.variants[0]
    timed = time_sizes(one.config, found.data_of(one.slug), torch.device("cpu"), 8, 60.0)
    assert list(timed) == [1, 2, 4, 8]
    assert timed[8] < 0.6 * timed[1]
    assert paying(timed) > 1


def test_the_search_ends_with_its_time(study: Study) -> None:
    found = plan(study.file, runs=study.runs)
    one = found.variants[0]
    assert list(time_sizes(one.config, found.data, torch.device("cpu"), 64, 0.0)) == [1]
