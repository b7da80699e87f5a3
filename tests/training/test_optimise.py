"""Schedules against formulas; optimizers and clipping against torch, per member."""

import math

import pytest
import torch
from torch import nn

from headtohead.planning.schedule import learning_rate
from headtohead.schema.run_config import TrainConfig
from headtohead.training.optimise import StackOptimizer, clip_gradients

STEPS = 100


AFTER_WARM_UP = {
    "constant": lambda step: 1.0,
    # Vaswani et al. 2017, equation 3, with the peak in place of d_model ** -0.5.
    "inverse-sqrt": lambda step: (step / 20) ** -0.5,
    "cosine": lambda step: 0.5 * (1 + math.cos(math.pi * (step - 20) / (STEPS - 20))),
}


@pytest.mark.parametrize("schedule", AFTER_WARM_UP)
def test_warm_up_is_linear_up_to_the_peak_and_the_schedule_follows(schedule):
    config = TrainConfig(lr=0.5, schedule=schedule, warmup_steps=20)
    found = [learning_rate(config, step, STEPS) for step in range(1, STEPS + 1)]
    expected = [step / 20 if step <= 20 else AFTER_WARM_UP[schedule](step) for step in range(1, STEPS + 1)]
    assert found == pytest.approx([0.5 * rate for rate in expected], rel=1e-12, abs=1e-15)


class Stacked(nn.Module):
    """Parameters of three members."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        draw = {"generator": generator, "dtype": torch.float64}
        self.weight = nn.Parameter(torch.randn(3, 4, 5, **draw))
        self.bias = nn.Parameter(torch.randn(3, 1, 5, **draw))
        self.unused = nn.Parameter(torch.randn(3, 2, **draw))

    def members_of(self, name):
        return (0, 1, 2)

    def give_gradients(self, step):
        generator = torch.Generator().manual_seed(100 + step)
        for parameter in (self.weight, self.bias):
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * torch.tensor(
                [0.01, 1.0, 100.0]
            ).view(-1, *[1] * (parameter.dim() - 1))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("name", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_optimizer_of_a_stack_equals_torchs_for_each_member(name, theirs, weight_decay):
    stacked = Stacked()
    single_members = [
        [nn.Parameter(parameter[member].detach().clone()) for parameter in stacked.parameters()] for member in range(3)
    ]
    train = TrainConfig(
        optimizer=name, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=weight_decay, schedule="constant"
    )
    ours = StackOptimizer([train] * 3, stacked, 5)
    torch_optimizers = [
        theirs(parameters, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=weight_decay)
        for parameters in single_members
    ]
    for step in range(5):
        stacked.give_gradients(step)
        for member, parameters in enumerate(single_members):
            for own, shared in zip(parameters, stacked.parameters(), strict=True):
                own.grad = None if shared.grad is None else shared.grad[member].clone()
            torch_optimizers[member].step()
        ours.set_step(step + 1)
        ours.update()
    for member, parameters in enumerate(single_members):
        for own, shared in zip(parameters, stacked.parameters(), strict=True):
            torch.testing.assert_close(shared[member], own, rtol=0, atol=1e-14)


@pytest.mark.parametrize("largest", [0.5, 5.0, 1e9])
def test_clipping_of_a_stack_equals_torchs_for_each_member(largest):
    stacked = Stacked()
    stacked.give_gradients(0)
    single_members = []
    for member in range(3):
        own = [nn.Parameter(torch.zeros_like(weight[member])) for weight in (stacked.weight, stacked.bias)]
        for parameter, shared in zip(own, (stacked.weight, stacked.bias), strict=True):
            parameter.grad = shared.grad[member].clone()
        single_members.append(own)
    expected = [float(nn.utils.clip_grad_norm_(own, largest)) for own in single_members]
    norms = clip_gradients(list(stacked.parameters()), largest)
    assert norms.tolist() == pytest.approx(expected, rel=1e-12)
    for member, own in enumerate(single_members):
        for parameter, shared in zip(own, (stacked.weight, stacked.bias), strict=True):
            torch.testing.assert_close(shared.grad[member], parameter.grad, rtol=1e-12, atol=0)
    assert stacked.unused.grad is None


def test_a_diverging_member_does_not_change_the_clipping_of_others():
    stacked = Stacked()
    stacked.give_gradients(0)
    before = stacked.weight.grad[:2].clone()
    stacked.weight.grad[2] = torch.inf
    clip_gradients(list(stacked.parameters()), 1e9)
    assert torch.equal(stacked.weight.grad[:2], before)
    assert not stacked.weight.grad[2].isfinite().any()
