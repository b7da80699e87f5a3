"""A member trains in a stack as it would alone, and a resumed training equals an uninterrupted one."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from headtohead.model.members import shape
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage.resume_points import ResumePoints
from headtohead.testing.extremum import largest_number
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.testing.verdict import Verdict, violated, within
from headtohead.training.loop import StackTraining, TimeLimitReached

CLOSE = 1e-10
"""Largest float64 difference between weights after a few steps in a stack and alone."""


@invariant("stacking")
def a_member_trains_as_it_would_alone(subject: Subject) -> Verdict:
    """Training steps of member k in a stack equal those of run k alone, dropout included."""
    state = torch.get_rng_state()
    configs = subject.config, with_dropout(subject.config)
    difference = largest_number(_largest_difference(subject, config) for config in configs)
    if not torch.equal(torch.get_rng_state(), state):
        torch.set_rng_state(state)
        return violated("training uses torch's global generator, so that random numbers depend on the stack")
    return within(difference, "difference between weights trained in a stack and alone", CLOSE)


def _largest_difference(subject: Subject, config: RunConfig) -> float:
    """Return the largest difference between members of a stack with an unlike member and runs alone."""
    seeds = subject.seeds
    alone = [trained_weights(subject, config, [seed])[0] for seed in seeds]
    stack = trained_weights(subject, config, [*seeds, 7], [config] * len(seeds) + [unlike(config)])
    return largest_number(
        float((stacked[name] - value).abs().max())
        for stacked, single in zip(stack, alone, strict=False)
        for name, value in single.items()
    )


def with_dropout(config: RunConfig) -> RunConfig:
    """Return the configuration with dropout before, in and after the attentions."""
    rates = {"dropout_embedding": 0.1, "dropout_attention": 0.2, "dropout_residual": 0.1}
    return config.model_copy(update={"model": config.model.model_copy(update=rates)})


def unlike(config: RunConfig) -> RunConfig:
    """Return a variant that can share a stack with ``config`` and differs from it in as much as possible."""
    none = config.positional.encoder.name == "none"
    positional = tiny_config("sinusoidal" if none else "none").positional
    train = config.train.model_copy(
        update={
            "lr": config.train.lr / 3,
            "weight_decay": 0.1,
            "label_smoothing": 0.2,
            "warmup_steps": 1,
            "clip_norm": 0.1,
        }
    )
    model = config.model.model_copy(
        update={"init": "torch", "mask_value": "-1e9", "dropout_ffn": 0.1, "dropout_attention": 0.0}
    )
    other = config.model_copy(update={"train": train, "model": model})
    with_positional = other.model_copy(update={"positional": positional})
    registry = current()
    return with_positional if shape(with_positional, registry) == shape(config, registry) else other


def trained_weights(
    subject: Subject, config: RunConfig, seeds: Sequence[int], configs: Sequence[RunConfig] | None = None
) -> list[dict[str, Tensor]]:
    """Train a stack on the subject's data in float64 and return the weights of each member.

    Args:
        subject: Its data is used.
        config: The configuration of every member without ``configs``.
        seeds: The seed of each member.
        configs: The configuration of each member.
    """
    members = [_in_float64(member) for member in configs or [config] * len(seeds)]
    training = StackTraining(members[0], seeds, subject.data, torch.device("cpu"), configs=members)
    training.evaluate_every = training.steps
    training.run()
    return [training.model.member_state(member) for member in range(len(seeds))]


def _in_float64(config: RunConfig) -> RunConfig:
    train = {"precision": "float64", "evaluate_every": None}
    return config.model_copy(update={"train": config.train.model_copy(update=train)})


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
