"""Model FLOP utilisation: its definition, and the measured peak."""

import pytest
import torch

from headtohead.model.precision import peak_flops
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.loop import StackTraining
from headtohead.training.results import cost_metrics


def test_every_member_counts_with_its_own_tokens_and_flops() -> None:
    training = StackTraining(
        tiny_config(train={"steps": 3, "precision": "float32"}), [1, 2], tiny_data(), torch.device("cpu")
    )
    training.run()
    tokens = training.token_sums.tolist()
    costs = cost_metrics(training, [1e6, 3e6])
    flops = 3 * (1e6 * tokens[0] + 3e6 * tokens[1])  # a training step costs three forward passes
    expected = flops / costs["system/train_seconds"] / peak_flops("cpu", "float32")
    assert min(tokens) > 0
    assert costs["system/mfu"] == pytest.approx(expected)
    assert cost_metrics(training, [2e6, 6e6])["system/mfu"] == pytest.approx(2 * expected)
