"""A run in a stack is the run alone: neighbours are never felt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headtohead.experiment.schema import RunConfig
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within
from headtohead.training.checkpoint import member_state
from headtohead.training.loop import StackTraining

CLOSE = 1e-10
"""Largest difference, in float64, of weights after a few steps in a stack and alone."""


@invariant("stacking")
def a_member_trains_as_it_would_alone(subject: Subject) -> Verdict:
    """Steps of member k in a stack equal steps of the run with seed k alone."""
    stacked = trained_weights(subject, subject.config, subject.seeds)
    differences = []
    for member, seed in enumerate(subject.seeds):
        (alone,) = trained_weights(subject, subject.config, [seed])
        differences += [float((stacked[member][name] - alone[name]).abs().max()) for name in alone]
    return within(max(differences), "difference of weights trained in a stack and alone", CLOSE)


def trained_weights(
    subject: Subject, config: RunConfig, seeds: Sequence[int]
) -> list[dict[str, Tensor]]:
    """Train a stack on the subject's data in float64; return each member's weights."""
    train = config.train.model_copy(
        update={"precision": "float64", "device": "cpu", "evaluate_every": None}
    )
    # The loop seeds torch's own stream; whoever asked for a check keeps theirs.
    with torch.random.fork_rng(devices=[]):
        training = StackTraining(
            config.model_copy(update={"train": train}), seeds, subject.data, torch.device("cpu")
        )
        training.evaluate_every = training.steps
        training.run()
    return [member_state(training.model, member) for member in range(len(seeds))]
