"""Variants of one shape train in one stack, and each has the scores of a separate training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headtohead import files
from headtohead.storage.stack import stack_folders

from .test_isolation import BROKEN, plugin

if TYPE_CHECKING:
    from .conftest import Study

UNLIKE: dict[str, Any] = {
    "base": {"model": {"dropout": 0.0}},
    "baseline": {"positional": "t5-relative"},
    "design": [
        {
            "one_at_a_time": {
                "positional": ["alibi"],
                "train.lr": [0.001],
                "train.label_smoothing": [0.1],
                "masking.encoder": ["none"],
            }
        }
    ],
}


@pytest.mark.slow
def test_variants_of_one_shape_train_in_one_stack_with_the_scores_of_separate_trainings(study: Study) -> None:
    study.write(**UNLIKE)
    done = study.run()
    assert "training 10 runs in 1 stack" in done.stderr
    assert " and 4 more: 10 of 10 runs done" in done.stderr
    (folder,) = stack_folders(study.experiment)
    assert sorted(len(members) for _, _, members in folder.record.variants) == [2] * 5
    together = study.scores()
    for path in study.directories():
        assert files.read_json(path / "run.json")["execution"]["stack"] == [
            member.run_hash for member in folder.record.members
        ]
    apart = study.run("--fresh", "--workers", "10")
    assert "training 10 runs in 10 stacks" in apart.stderr
    for name, separate in study.scores().items():
        assert set(together[name]) == set(separate)
        for metric, value in separate.items():
            # Metrics count tokens, and a token can depend on the last bit of a logit.
            counted = metric.startswith("test/") and "loss" not in metric
            room = {"abs": 3.0} if counted else {"rel": 1e-3, "abs": 1e-4}
            assert together[name][metric] == pytest.approx(value, **room), (name, metric)


@pytest.mark.slow
def test_a_run_of_an_unlike_stack_is_loaded_and_reproduced_to_the_last_bit(study: Study) -> None:
    study.write(**UNLIKE, seeds=1)
    study.run()
    own = next(path for path in study.directories() if "alibi" not in path.name)
    translated = study.here(study.folder, "translate", own.name, "the cat sleeps", H2H_CACHE=str(study.cache))
    assert translated.returncode == 0, translated.stderr
    again = study.here(study.folder, "reproduce", own.name, H2H_CACHE=str(study.cache))
    assert "bit-for-bit equal" in again.stdout


@pytest.mark.slow
def test_a_failing_variant_fails_no_other_variant_of_its_stack(study: Study) -> None:
    study.write(baseline={"positional": "none"}, design=[{"one_at_a_time": {"positional": ["broken", "alibi"]}}])
    done = study.run(*plugin(study, BROKEN), code=1)
    assert "training 6 runs in 1 stack" in done.stderr
    states = study.states()
    failed = {name for name, state in states.items() if state == "FAILED"}
    assert len(failed) == 2
    assert all("broken" in name for name in failed)
    assert sorted(states.values()) == ["DONE"] * 4 + ["FAILED"] * 2
    assert len(stack_folders(study.experiment)) == 3
