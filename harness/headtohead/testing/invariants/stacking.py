"""A run in a stack is the run alone: neighbours are never felt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headtohead.model.members import shape
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.testing.verdict import Verdict, within
from headtohead.training.loop import StackTraining

CLOSE = 1e-10
"""Largest difference, in float64, of weights after a few steps in a stack and alone."""


@invariant("stacking")
def a_member_trains_as_it_would_alone(subject: Subject) -> Verdict:
    """Steps of member k in a stack equal steps of the run with seed k alone, dropout and all."""
    random = torch.get_rng_state()
    found = max(_distance(subject, subject.config), _distance(subject, dropping(subject.config)))
    if not torch.equal(torch.get_rng_state(), random):
        torch.set_rng_state(random)
        told = "training drew from torch's own stream, which no member has alone"
        return Verdict("broken", None, told, shown=told)
    return within(found, "difference of weights trained in a stack and alone", CLOSE)


def _distance(subject: Subject, config: RunConfig) -> float:
    """Return how far members of a stack with an unlike neighbour are from the same runs alone."""
    seeds = subject.seeds
    alone = [trained_weights(subject, config, [seed])[0] for seed in seeds]
    stack = trained_weights(subject, config, [*seeds, 7], [config] * len(seeds) + [unlike(config)])
    return max(
        float((stacked[name] - own[name]).abs().max())
        for stacked, own in zip(stack, alone, strict=False)
        for name in own
    )


def dropping(config: RunConfig) -> RunConfig:
    """Return the configuration with dropout before, in and after the attentions."""
    rates = {"dropout_embedding": 0.1, "dropout_attention": 0.2, "dropout_residual": 0.1}
    return config.model_copy(update={"model": config.model.model_copy(update=rates)})


def unlike(config: RunConfig) -> RunConfig:
    """Return a variant that a stack may hold beside one, other in all that it may differ in."""
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
    moved = other.model_copy(update={"positional": positional})
    registry = current()
    return moved if shape(moved, registry) == shape(config, registry) else other


def trained_weights(
    subject: Subject, config: RunConfig, seeds: Sequence[int], configs: Sequence[RunConfig] | None = None
) -> list[dict[str, Tensor]]:
    """Train a stack on the subject's data in float64; return each member's weights."""
    own = [_in_float64(one) for one in configs or [config] * len(seeds)]
    training = StackTraining(own[0], seeds, subject.data, torch.device("cpu"), configs=own)
    training.evaluate_every = training.steps
    training.run()
    return [training.model.member_state(member) for member in range(len(seeds))]


def _in_float64(config: RunConfig) -> RunConfig:
    train = {"precision": "float64", "evaluate_every": None}
    return config.model_copy(update={"train": config.train.model_copy(update=train)})
