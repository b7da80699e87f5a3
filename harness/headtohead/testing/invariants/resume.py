"""A training that was cut off and goes on ends where an undisturbed one ends."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within
from headtohead.training.loop import StackTraining


@invariant("resume")
def a_resumed_training_equals_an_undisturbed_one(subject: Subject) -> Verdict:
    """Training that is cut off, saved, loaded and continued ends with the same weights."""
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resume.safetensors"
        whole = _training(subject, None)
        whole.run()
        half = _training(subject, path)
        with suppress(TimeoutError):
            half.run(lambda: whole.steps // 2 - half.progress.step)
        rest = _training(subject, path)
        rest.run()
    ends = whole.model.state_dict(), rest.model.state_dict()
    apart = {name: float((ends[0][name] - ends[1][name]).abs().max()) for name in ends[0] if ends[0][name].numel()}
    name = max(apart, key=lambda one: apart[one])
    what = "difference of weights of a resumed training and an undisturbed one"
    return within(apart[name], what, 0.0, shown=f"{name}: {what} is {apart[name]:.3g}")


def _training(subject: Subject, path: Path | None) -> StackTraining:
    train = subject.config.train.model_copy(update={"precision": "float64", "evaluate_every": None})
    config = subject.config.model_copy(update={"train": train})
    training = StackTraining(config, subject.seeds, subject.data, torch.device("cpu"), path)
    training.evaluate_every = training.steps
    return training
