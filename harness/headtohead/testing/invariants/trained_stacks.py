"""A member trains in a stack as it would alone, and a resumed training equals an uninterrupted one."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from headtohead.model.members import shape_key
from headtohead.schema.run_config import RunConfig, changed
from headtohead.storage.stack import ResumePoints
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.testing.verdict import Verdict, violated, within
from headtohead.training.loop import StackTraining, TimeLimitReached

CLOSE = 1e-10
"""Largest float64 difference between weights after a few steps in a stack and alone."""


@invariant("stacking", scope="training")
def a_member_trains_as_it_would_alone(subject: Subject) -> Verdict:
    """Training steps of member k in a stack equal those of run k alone, dropout included."""
    state = torch.get_rng_state()
    differences = []
    dropout = {"dropout_embedding": 0.1, "dropout_attention": 0.2, "dropout_residual": 0.1}
    for config in (subject.config, changed(subject.config, model=dropout)):
        # The stack has another member, which is unlike the subject's.
        configs = [*[config] * len(subject.seeds), unlike(config)]
        alone = [trained_weights(subject, config, [seed])[0] for seed in subject.seeds]
        stack = trained_weights(subject, config, [*subject.seeds, 7], configs)
        for stacked, single in zip(stack, alone, strict=False):
            for name, value in single.items():
                differences.append(float((stacked[name] - value).abs().max()))
    if not torch.equal(torch.get_rng_state(), state):
        torch.set_rng_state(state)
        return violated(
            "training uses torch's global generator, so that random numbers depend on the stack"
        )
    return within(
        differences, "difference between weights trained in a stack and alone", bound=CLOSE
    )


def unlike(config: RunConfig) -> RunConfig:
    """Return a variant that can share a stack with ``config`` and differs from it in as much as possible."""
    smoothing = {"weight_decay": 0.1, "label_smoothing": 0.2, "warmup_steps": 1, "clip_norm": 0.1}
    dropout = {"dropout_ffn": 0.1, "dropout_attention": 0.0}
    other = changed(
        config,
        train={"lr": config.train.lr / 3, **smoothing},
        model={"init": "torch", "mask_value": "-1e9", **dropout},
    )
    encoding = "sinusoidal" if config.positional.encoder.name == "none" else "none"
    positional = tiny_config(encoding).positional
    with_positional = other.model_copy(update={"positional": positional})
    if shape_key(with_positional) == shape_key(config):
        return with_positional
    return other


def trained_weights(
    subject: Subject,
    config: RunConfig,
    seeds: Sequence[int],
    configs: Sequence[RunConfig] | None = None,
) -> list[dict[str, Tensor]]:
    """Train a stack on the subject's data in float64 and return the weights of each member."""
    training = _training(subject, configs or [config] * len(seeds), seeds)
    training.run()
    return [training.model.member_state(member) for member in range(len(seeds))]


def _training(
    subject: Subject,
    configs: Sequence[RunConfig],
    seeds: Sequence[int],
    points: ResumePoints | None = None,
) -> StackTraining:
    """Return a training in float64 that is evaluated after its last step only."""
    members = [
        changed(config, train={"precision": "float64", "evaluate_every": None})
        for config in configs
    ]
    training = StackTraining(
        members[0], seeds, subject.data, torch.device("cpu"), points, configs=members
    )
    training.evaluate_every = training.steps
    return training


@invariant("resume", scope="training")
def a_resumed_training_equals_an_uninterrupted_one(subject: Subject) -> Verdict:
    """Training that is interrupted, saved, loaded and resumed gives the same weights."""
    configs = [subject.config] * len(subject.seeds)
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        points = ResumePoints(Path(folder))
        whole = _training(subject, configs, subject.seeds)
        whole.run()
        interrupted = _training(subject, configs, subject.seeds, points)
        with suppress(TimeLimitReached):
            interrupted.run(lambda: whole.steps // 2 - interrupted.progress.step)
        resumed = _training(subject, configs, subject.seeds, points)
        resumed.run()
    weights = resumed.model.state_dict()
    differences: dict[str, float] = {}
    for name, value in whole.model.state_dict().items():
        if value.numel():
            differences[name] = float((value - weights[name]).abs().max())
    largest = max(differences, key=lambda name: (math.isnan(differences[name]), differences[name]))
    quantity = (
        f"difference between the weights {largest} of a resumed and an uninterrupted training"
    )
    return within(differences[largest], quantity, bound=0.0)
