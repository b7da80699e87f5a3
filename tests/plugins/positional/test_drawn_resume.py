"""Sampled positions: a resumed training continues with the same samples."""

import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.data import cache_root, prepare
from headtohead.plugins.registry import current
from headtohead.storage.stack import ResumePoints
from headtohead.training.loop import StackTraining, TimeLimitReached
from made import case_table

DRAWING = {
    "shape": "shape",
    "randomised": "randomised",
    "randomised rotary": {"name": "randomised", "of": "rotary"},
    "randomised alibi": {"name": "randomised", "of": "alibi"},
    "one of each": {"encoder": "shape", "decoder": "randomised"},
}


def training(positional, points=None):
    config = resolve(
        {
            "positional": positional,
            "data": {"dataset": "toy-grammar", "size": 200},
            "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.1},
            "train": {"steps": 10, "batch_tokens": 128, "lr": 0.01, "evaluate_every": 5},
        },
        current(),
    )
    data = prepare(config.data, cache_root())
    return StackTraining(config, [1, 2, 3], data, torch.device("cpu"), points)


def train_until(positional, points, at):
    first = training(positional, points)
    with pytest.raises(TimeLimitReached):
        first.run(lambda: at - first.progress.step)


def same(stack_a, stack_b):
    states = (stack.model.state_dict() for stack in (stack_a, stack_b))
    return all(torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True))


@case_table("positional", DRAWING.values(), ids=DRAWING.keys(), default=1)
def test_resumed_training_is_bit_equal_to_uninterrupted_training(positional, tmp_path):
    whole, points = training(positional), ResumePoints(tmp_path)
    whole.run()
    train_until(positional, points, 6)
    rest = training(positional, points)
    rest.run()
    assert rest.progress.step == 10
    assert same(whole, rest)
    assert whole.progress.members == rest.progress.members
