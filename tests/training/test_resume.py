"""A resumed training equals an uninterrupted training, bit for bit on a CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.data import cache_root, prepare
from headtohead.schema.run_config import RunConfig
from headtohead.storage.stack import ResumePoints
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training import checkpoint
from headtohead.training.loop import (
    End,
    Evaluation,
    StackTraining,
    TimeLimitReached,
    TrainingEvents,
)
from made import case_table


def tiny(
    dropout: float = 0.2, positional: object = None, model: object = None, **train: object
) -> RunConfig:
    return resolve(
        ({"positional": positional} if positional else {})
        | ({"model.architecture": model} if model else {})
        | {
            "data": {"dataset": "toy-grammar", "size": 300},
            "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": dropout},
            "train": {"steps": 24, "batch_tokens": 128, "lr": 0.01, "evaluate_every": 8} | train,
        },
    )


def training(
    config: RunConfig, points: ResumePoints | None = None, **more: object
) -> StackTraining:
    data = prepare(config.data, cache_root())
    return StackTraining(config, [1, 2, 3], data, torch.device("cpu"), points, **more)  # type: ignore[arg-type]


def train_until(config: RunConfig, points: ResumePoints, at: int) -> None:
    """Train up to a step and write the resume point."""
    first = training(config, points)
    with pytest.raises(TimeLimitReached):
        first.run(lambda: at - first.progress.step)


CONFIGS = {
    "plain": {},
    "between two training losses": {"steps": 60, "evaluate_every": 50},
    "adam and cosine": {"optimizer": "adam", "schedule": "cosine", "weight_decay": 0.1},
    "decoder-only, muon and wsd": {
        "model": "decoder-only",
        "optimizer": "muon",
        "schedule": "wsd",
        "weight_decay": 0.1,
        "z_loss": 1e-2,
    },
    "early stopping": {"early_stopping": {"patience": 1}, "evaluate_every": 2, "lr": 0.3},
}


@case_table(
    ("name", "at"),
    [
        ("plain", 13),
        ("between two training losses", 51),
        ("plain", 1),
        ("adam and cosine", 18),
        ("decoder-only, muon and wsd", 9),
        ("early stopping", 3),
    ],
    default=2,
)
def test_a_resumed_training_equals_an_undisturbed_one(tmp_path: Path, name: str, at: int) -> None:
    config = tiny(**CONFIGS[name])
    seen: list[Evaluation] = []
    whole = training(config, events=TrainingEvents(on_evaluation=seen.append, on_loss=seen.append))
    whole.run()
    assert whole.progress.step > at
    points = ResumePoints(tmp_path)
    train_until(config, points, at)
    _, state = checkpoint.load(points.newest_first()[0].path)
    later: list[Evaluation] = []
    torch.rand(7)  # A resume does not depend on the global random state.
    rest = training(
        config, points, events=TrainingEvents(on_evaluation=later.append, on_loss=later.append)
    )
    rest.run()
    for (key, a), (_, b) in zip(
        whole.model.state_dict().items(), rest.model.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), key
    assert [e for e in seen if e.step > at] == later
    assert whole.progress.members == rest.progress.members
    assert torch.equal(whole.token_sums, rest.token_sums)
    assert state["train_seconds"] < state["elapsed_seconds"] == rest.clock.earlier
    assert rest.clock.earlier < rest.clock.seconds
    assert whole.clock.earlier == 0


@pytest.mark.slow
def test_a_lost_momentum_in_a_resume_point_is_detected(tmp_path: Path) -> None:
    """The planted fault: this test's comparison must be able to fail."""
    config, points = tiny(), ResumePoints(tmp_path)
    whole = training(config)
    whole.run()
    train_until(config, points, 13)
    tensors, state = checkpoint.load(points.newest_first()[0].path)
    name = next(name for name in tensors if name.startswith("optimizer/"))
    tensors[name] = torch.zeros_like(tensors[name])
    points.save(13, lambda path: checkpoint.save(path, tensors, state))
    rest = training(config, points)
    rest.run()
    assert not torch.equal(whole.model.lm_head.weight, rest.model.lm_head.weight)


@pytest.mark.slow
def test_early_stopping_keeps_each_members_best_weights() -> None:
    config = tiny(early_stopping={"patience": 1}, evaluate_every=2, lr=0.3)
    stack = training(config)
    stack.run()
    assert any(member.ended == End.STOPPED_EARLY for member in stack.progress.members)
    from headtohead.training.evaluate import teacher_forced

    split = stack.splits["valid"]
    forced = teacher_forced(stack.model, split, split.padded_batches(128))
    for index, member in enumerate(stack.progress.members):
        assert forced.metrics(index)["loss"] == pytest.approx(member.best, rel=1e-5)


@pytest.mark.parametrize(
    "positional",
    ["sinusoidal", "shape", "randomised", {"encoder": "shape", "decoder": "rotary"}],
    ids=str,
)
def test_microbatches_give_the_gradient_of_the_whole_batch(positional: object) -> None:
    config = tiny(precision="float64", positional=positional)
    whole, pieces = training(config), training(config)
    pieces.num_microbatches = 3
    for _, cut in zip(range(2), whole._batches(), strict=False):
        losses = [training.gradients(cut.rows, cut.shape) for training in (whole, pieces)]
        torch.testing.assert_close(*losses, atol=1e-12, rtol=0)
    for a, b in zip(whole.parameters, pieces.parameters, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-12, rtol=0)
    for a, b in zip(
        whole.model.state_dict().values(), pieces.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


@case_table(("seconds", "written"), [(0.0, 25), (0.01, 2), (1e9, 0)], default=1)
def test_resume_points_that_are_dear_to_write_are_written_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, written: int
) -> None:
    """Writing takes 0.25 s and a step 0.01 s; trainings that are shorter than ``checkpoint_seconds`` write none."""
    clock, saves = [0.0], []
    monkeypatch.setattr("headtohead.training.loop.time.monotonic", lambda: clock[0])
    stack = training(tiny(checkpoint_seconds=seconds), ResumePoints(tmp_path))

    def save() -> None:
        clock[0] += 0.25
        saves.append(stack.progress.step)

    def step(done: int, steps: int) -> None:
        clock[0] += 0.01

    monkeypatch.setattr(stack, "save_resume_point", save)
    stack.events = TrainingEvents(on_progress=step)
    stack.run()
    assert len(saves) == written
    assert saves[-1:] == [24] * bool(written)


def test_the_training_time_of_a_resume_point_includes_the_steps_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU executes launched steps later: writing must not count as part of them, nor they as part of writing."""
    clock, pauses = [0.0], list[float]()
    points = ResumePoints(tmp_path)
    stack = training(tiny(checkpoint_seconds=0.5), points)
    monkeypatch.setattr("headtohead.training.loop.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("headtohead.training.loop.time.perf_counter", lambda: clock[0])
    launched = [0]

    def wait(device: torch.device) -> None:
        clock[0] += 0.1 * launched[0]
        launched[0] = 0

    def step(done: int, steps: int) -> None:
        launched[0] += 1
        clock[0] += 0.1  # launching is not part of the time that is measured here

    def save(step: int, write: Any) -> None:
        wait(stack.device)  # a copy to the host waits for the device
        assert stack.progress.train_seconds == pytest.approx(0.1 * step)
        clock[0] += 0.01
        pauses.append(clock[0])

    monkeypatch.setattr("headtohead.training.loop.wait", wait)
    monkeypatch.setattr(ResumePoints, "save", lambda self, step, write: save(step, write))
    stack.events = TrainingEvents(on_progress=step)
    stack.run()
    assert stack.progress.train_seconds == pytest.approx(0.1 * 24)
    assert len(pauses) >= 4, "a resume point takes 0.01 s, so the pause stays 0.5 s"


def test_the_step_of_an_early_stop_does_not_depend_on_the_stack_and_survives_a_resume(
    tmp_path: Path,
) -> None:
    config = tiny(**CONFIGS["early stopping"])
    whole = training(config)
    whole.run()
    ended = [member.ended_step for member in whole.progress.members]
    assert len(set(ended)) > 1
    alone = StackTraining(config, [2], prepare(config.data, cache_root()), torch.device("cpu"))
    alone.run()
    assert alone.progress.members[0].ended_step == ended[1]
    points = ResumePoints(tmp_path)
    train_until(config, points, max(step for step in ended if step) - 1)
    again = training(config, points)
    again.run()
    assert [member.ended_step for member in again.progress.members] == ended


def test_a_resume_point_of_a_diverging_member_is_loaded(tmp_path: Path) -> None:
    """The loss of a step can be finite although its update makes the weights NaN, here that of step 2."""
    rates = {"precision": "float32", "steps": 12, "evaluate_every": 6, "clip_norm": None}
    configs = [tiny_config(train=rates | {"lr": rate}) for rate in (1e-3, 1e4)]
    points, log = ResumePoints(tmp_path), []

    def stack() -> StackTraining:
        device = torch.device("cpu")
        return StackTraining(
            configs[0],
            [1, 2],
            tiny_data(),
            device,
            points,
            configs=configs,
            events=TrainingEvents(on_fall_back=log.append),
        )

    first = stack()
    with pytest.raises(TimeLimitReached):
        first.run(lambda: 2 - first.progress.step)
    assert torch.isfinite(first.loss_sums).all()
    assert any(weights.isnan().any() for weights in first.model.member_state(1).values())
    stack().run()
    assert log == []
