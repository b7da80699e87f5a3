"""A training that is interrupted and resumed gives the weights of an uninterrupted training."""

from __future__ import annotations

import math
import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from headtohead.storage.resume_points import ResumePoints
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within
from headtohead.training.loop import StackTraining, TimeLimitReached


@invariant("resume")
def a_resumed_training_equals_an_uninterrupted_one(subject: Subject) -> Verdict:
    """Training that is interrupted, saved, loaded and resumed gives the same weights."""
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        points = ResumePoints(Path(folder))
        whole = _training(subject, None)
        whole.run()
        interrupted = _training(subject, points)
        with suppress(TimeLimitReached):
            interrupted.run(lambda: whole.steps // 2 - interrupted.progress.step)
        resumed = _training(subject, points)
        resumed.run()
    expected, weights = whole.model.state_dict(), resumed.model.state_dict()
    differences = {
        name: float((value - weights[name]).abs().max()) for name, value in expected.items() if value.numel()
    }
    name, difference = max(differences.items(), key=lambda item: (math.isnan(item[1]), item[1]))
    quantity = "difference between the weights of a resumed and an uninterrupted training"
    return within(difference, quantity, 0.0, counterexample=f"{name}: {quantity} is {difference:.3g}")


def _training(subject: Subject, resume_points: ResumePoints | None) -> StackTraining:
    train = subject.config.train.model_copy(update={"precision": "float64", "evaluate_every": None})
    config = subject.config.model_copy(update={"train": train})
    training = StackTraining(config, subject.seeds, subject.data, torch.device("cpu"), resume_points)
    training.evaluate_every = training.steps
    return training
