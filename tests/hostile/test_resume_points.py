"""Training continues from the newest intact resume point, with the results of an undisturbed training."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headtohead import files
from headtohead.storage.stack import ResumePoint, ResumePoints, stack_folders
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training import checkpoint
from headtohead.training.loop import StackTraining, TimeLimitReached, TrainingEvents
from made import kind_table
from made.fake_study import edit
from made.study import TINY, Completed, Study

Tensors = dict[str, Tensor]
State = dict[str, Any]
WEIGHT = "model/lm_head.weight"


def replace(point: ResumePoint, write: Callable[[Path], object]) -> None:
    """Replace a resume point by a file with its own sha256 in its name, as an edited file can have."""
    folder = point.path.parent / "other"
    folder.mkdir()
    ResumePoints(folder).save(point.step, write)
    (written,) = ResumePoints(folder).newest_first()
    point.path.unlink()
    written.path.rename(point.path.with_name(written.path.name))
    folder.rmdir()


def rewrite(change: Callable[[Tensors, State], object]) -> Callable[[ResumePoint], None]:
    """Return a damage of the tensors or the state."""

    def damage(point: ResumePoint) -> None:
        tensors, state = checkpoint.load(point.path)
        change(tensors, state)
        replace(point, lambda path: checkpoint.save(path, tensors, state))

    return damage


def content(change: Callable[[bytes], bytes]) -> Callable[[ResumePoint], None]:
    """Return a damage of the bytes of the file."""
    return lambda point: point.path.write_bytes(change(point.path.read_bytes())) and None


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


SHA = "its sha256 is not that of its name"
CASES: list[tuple[str, str, Callable[[ResumePoint], None], str]] = [
    ("content", "flipped-bit", content(flipped), SHA),
    (
        "edited",
        "no-tensors",
        lambda point: replace(point, lambda path: path.write_bytes(b"no" * 99)),
        "header too large",
    ),
    (
        "edited",
        "missing-weight",
        rewrite(lambda tensors, state: tensors.pop(WEIGHT)),
        "missing: lm_head.weight",
    ),
    (
        "edited",
        "shape",
        rewrite(lambda t, s: t.update({WEIGHT: t[WEIGHT][:, :-1]})),
        "wrong shape: lm_head.weight",
    ),
    ("edited", "no-members", rewrite(lambda t, s: s.update(members=7)), "members: Input should be"),
    ("edited", "other-runs", rewrite(lambda t, s: s["members"][0].update(seed=7)), ""),
    ("edited", "other-step", rewrite(lambda t, s: s.update(step=1000)), ""),
    (
        "edited",
        "no-optimizer",
        rewrite(lambda t, s: [t.pop(n) for n in [*t] if n.startswith("optimizer/")]),
        "",
    ),
]


TRAIN = {"steps": 12, "batch_tokens": 128, "evaluate_every": 4, "checkpoint_seconds": 0}
CONFIG = tiny_config(dropout=0.2, train=TRAIN)


def trained(
    folder: Path | None, stop: int = 13, log: Callable[[str], object] = print
) -> StackTraining:
    points = folder and ResumePoints(folder)
    stack = StackTraining(
        CONFIG,
        [1, 2],
        tiny_data(),
        torch.device("cpu"),
        points,
        events=TrainingEvents(on_fall_back=log),
    )
    if stop < 12:
        with pytest.raises(TimeLimitReached):
            stack.run(lambda: stop - stack.progress.step)
    else:
        stack.run()
    return stack


def same(a: StackTraining, b: StackTraining) -> bool:
    pairs = zip(a.model.state_dict().values(), b.model.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs) and a.progress.members == b.progress.members


@kind_table("damage, reason", CASES)
def test_training_continues_from_the_previous_resume_point(
    tmp_path: Path, damage: Callable[[ResumePoint], None], reason: str
) -> None:
    trained(tmp_path, 7)
    newest, previous = ResumePoints(tmp_path).newest_first()
    assert (newest.step, previous.step) == (7, 6)
    damage(newest)
    log: list[str] = []
    rest = trained(tmp_path, log=log.append)
    (line,) = log
    assert line.startswith("the resume point of step 7 is damaged (")
    assert reason in line
    assert line.endswith("); training continued from step 6")
    assert same(rest, trained(None))


@pytest.mark.slow
def test_training_starts_again_if_all_resume_points_are_damaged(tmp_path: Path) -> None:
    trained(tmp_path, 7)
    for point in ResumePoints(tmp_path).newest_first():
        CASES[0][2](point)
    log: list[str] = []
    rest = trained(tmp_path, log=log.append)
    assert [line.split(" is damaged")[0] for line in log] == [
        "the resume point of step 7",
        "the resume point of step 6",
    ]
    assert all(line.endswith("; training continued from step 0") for line in log)
    assert same(rest, trained(None))
    assert [point.step for point in ResumePoints(tmp_path).newest_first()] == [12, 11]


def test_a_killed_process_leaves_two_intact_resume_points(tmp_path: Path) -> None:
    points = ResumePoints(tmp_path)
    for step in range(4):
        points.save(step, lambda path: path.write_text("state"))
    (tmp_path / "resume-unnamed.safetensors").write_text("a kill before the rename")
    assert [point.step for point in points.newest_first()] == [3, 2]
    assert all(point.is_intact() for point in points.newest_first())
    points.clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_damaged_resume_point_of_a_study_is_in_its_results_and_report(
    tmp_path: Path, cache: Path, h2h_here: Callable[..., Completed], without_figures: None
) -> None:
    train = {"steps": 6, "batch_tokens": 128, "evaluate_every": 3}
    content = TINY | {
        "base": TINY["base"] | {"train": train, "evaluate": {"test_limit": 8, "max_length": 6}}
    }
    undisturbed, study, copy = (
        Study(tmp_path / name, cache, h2h_here, content) for name in ("a", "b", "c")
    )
    for made in (undisturbed, study):
        made.folder.mkdir()
        made.write()
    undisturbed.run()
    for _ in range(2):  # each attempt ends after a step
        study.run("--timeout", "0.000001", code=1)
        for run in study.directories():  # so that the same command continues, as after a kill
            edit(run / "status.json", state="KILLED")
    (stack,) = stack_folders(study.experiment)
    newest, previous = stack.resume_points.newest_first()
    newest.path.write_bytes(flipped(newest.path.read_bytes()))
    shutil.copytree(study.folder, copy.folder)
    for point in (newest, previous):
        (copy.folder / point.path.relative_to(study.folder)).write_bytes(b"")
    for made, step in ((study, previous.step), (copy, 0)):
        made.run()
        assert made.results() == undisturbed.results()
        note = f"the resume point of step {newest.step} is damaged ({SHA}); training continued from step {step}"
        for run in made.directories():
            ours, theirs = (
                files.read_json(own.experiment / run.name / "results.json")
                for own in (made, undisturbed)
            )
            assert note in ours["notes"]
            assert theirs["notes"] == []
            assert ours["buckets"] == theirs["buckets"]
        assert f"2 runs: {note}." in made.page()
