"""Schedules against formulas; optimizers and clipping against torch, per member."""

import math

import pytest
import torch
from torch import nn

from headtohead.config.builder import resolve
from headtohead.model.layers import StackedLinear
from headtohead.model.transformer import Transformer
from headtohead.planning.schedule import learning_rate
from headtohead.schema.run_config import TrainConfig
from headtohead.testing.tiny import tiny_config
from headtohead.training.optimise import StackOptimizer, clip_gradients

STEPS = 100


def train_config(**fields):
    """Return the section ``train`` with parsed options of its schedule."""
    return resolve({"train": {"steps": 1, **fields}}).train


AFTER_WARM_UP = {
    "constant": lambda step: 1.0,
    # Vaswani et al. 2017, equation 3, with the peak in place of d_model ** -0.5.
    "inverse-sqrt": lambda step: (step / 20) ** -0.5,
    "cosine": lambda step: 0.5 * (1 + math.cos(math.pi * (step - 20) / (STEPS - 20))),
    "wsd": lambda step: min(1.0, (STEPS - step) / 25),
}


@pytest.mark.parametrize("schedule", AFTER_WARM_UP)
def test_warm_up_is_linear_up_to_the_peak_and_the_schedule_follows(schedule):
    options = {"decay_fraction": 0.25} if schedule == "wsd" else {}
    config = train_config(lr=0.5, schedule={"name": schedule, **options}, warmup_steps=20)
    found = [learning_rate(config, step, STEPS) for step in range(1, STEPS + 1)]
    expected = [
        step / 20 if step <= 20 else AFTER_WARM_UP[schedule](step) for step in range(1, STEPS + 1)
    ]
    assert found == pytest.approx([0.5 * rate for rate in expected], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_decaying_schedules_end_at_the_final_rate(schedule):
    options = {"decay_fraction": 0.9} if schedule == "wsd" else {}
    config = train_config(
        lr=1e-3, schedule={"name": schedule, "final_lr": 1e-4, **options}, warmup_steps=20
    )
    rates = [learning_rate(config, step, STEPS) for step in range(20, STEPS + 1)]
    assert (rates[0], rates[-1]) == pytest.approx((1e-3, 1e-4), rel=1e-12)
    assert rates == sorted(rates, reverse=True)


class Stacked(nn.Module):
    """Three maps side by side and an output projection of three members; gradients differ in size by member."""

    def __init__(self):
        super().__init__()
        generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
        self.layer = StackedLinear(generators, 6, [4, 4, 9], True, "torch")
        self.lm_head = StackedLinear(generators, 6, [5], False, "torch")
        self.unused = nn.ParameterList([torch.ones(3, 2)])
        self.double()

    @property
    def used(self):
        return [*self.layer.parameters(), *self.lm_head.parameters()]

    def owned_parameters(self):
        return [(name, parameter, (0, 1, 2)) for name, parameter in self.named_parameters()]

    def give_gradients(self, step):
        generator = torch.Generator().manual_seed(100 + step)
        for parameter in self.used:
            sizes = torch.tensor([0.01, 1.0, 100.0]).view(-1, 1, 1)
            parameter.grad = (
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * sizes
            )


@pytest.mark.parametrize(("weight_decay", "decay"), [(0.0, "all"), (0.1, "all"), (0.1, "matrices")])
@pytest.mark.parametrize(
    ("name", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_optimizer_of_a_stack_equals_torchs_for_each_member(name, theirs, weight_decay, decay):
    stacked = Stacked()
    single_members = [
        [nn.Parameter(parameter[member].detach().clone()) for parameter in stacked.parameters()]
        for member in range(3)
    ]
    settings = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": weight_decay}
    ours = StackOptimizer(
        [TrainConfig(optimizer=name, schedule="constant", decay=decay, **settings)] * 3, stacked, 5
    )
    torch_optimizers = []
    for parameters in single_members:
        vectors = [own for own in parameters if decay == "matrices" and min(own.shape) == 1]
        others = [own for own in parameters if all(own is not vector for vector in vectors)]
        groups = [{"params": others}, {"params": vectors, "weight_decay": 0.0}]
        torch_optimizers.append(theirs([group for group in groups if group["params"]], **settings))
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


@pytest.mark.parametrize(
    ("name", "vectors"),
    [
        ("kerple-log", {"r1", "r2"}),
        ("fire", {"inner", "c", "multiple"}),
        ("forgetting", {"offset"}),
    ],
)
def test_vectors_of_several_layers_are_not_decayed_as_matrices(name, vectors):
    options = {} if name == "forgetting" else {"layers": "own"}
    config = tiny_config(
        {"encoder": "none", "decoder": {"name": name, **options}}, decoder_layers=2
    )
    model = Transformer(config, [1], 5, 5)
    groups = StackOptimizer([TrainConfig(decay="matrices", weight_decay=0.1)], model, 5).groups
    kept = {
        id(tensor) for group in groups if not group["weight_decay"] for tensor in group["params"]
    }
    own = model.positionals["decoder"].named_parameters()
    assert {name for name, parameter in own if id(parameter) in kept} == vectors


@pytest.mark.parametrize(
    ("decay", "kept"), [("all", {"rate", "step"}), ("matrices", {"rate", "step", "gain"})]
)
def test_parameters_that_a_component_excludes_take_no_weight_decay(decay, kept):
    config = tiny_config(
        "none", {"encoder": "split-heads", "decoder": "gated-delta"}, decoder_layers=1
    )
    model = Transformer(config, [1, 2], 5, 5).double()
    train = TrainConfig(weight_decay=0.1, decay=decay, schedule="constant")
    # The members differ in lr, so that each has a slice of every parameter.
    optimizer = StackOptimizer([train, train.model_copy(update={"lr": 0.01})], model, 5)
    style = model.decoder[0].attention.style
    before = {name: parameter.detach().clone() for name, parameter in style.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.set_step(1)
    optimizer.update()
    unchanged = {
        name for name, parameter in style.named_parameters() if torch.equal(parameter, before[name])
    }
    assert unchanged == kept


def singular_values_after(values):
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    return values


def muon_by_loops(weight, gradients, rate, decay):
    """Muon of one matrix, with a singular value decomposition in place of products."""
    average = torch.zeros_like(weight)
    for gradient in gradients:
        average = 0.95 * average + 0.05 * gradient
        left, values, right = torch.linalg.svd(
            0.05 * gradient + 0.95 * average, full_matrices=False
        )
        update = (
            left @ torch.diag(singular_values_after(values / values.square().sum().sqrt())) @ right
        )
        weight = (1 - rate * decay) * weight - 0.2 * max(weight.shape) ** 0.5 * rate * update
    return weight


@pytest.mark.parametrize(
    "members", [(0, 1, 2), (1,)], ids=["all rates equal", "another rate of one member"]
)
def test_muon_updates_every_map_of_every_member_alone(members):
    stacked = Stacked()
    before = [parameter.detach().clone() for parameter in stacked.used]
    train = TrainConfig(optimizer="muon", lr=0.01, weight_decay=0.1, schedule="constant")
    trains = [
        train if member in members else train.model_copy(update={"lr": 0.02}) for member in range(3)
    ]
    ours = StackOptimizer(trains, stacked, 5)
    gradients = []
    for step in range(5):
        stacked.give_gradients(step)
        gradients.append([parameter.grad.clone() for parameter in stacked.used])
        ours.set_step(step + 1)
        ours.update()
    for member, own in enumerate(trains):
        matrix = [step[0][member].split([4, 4, 9], dim=-1) for step in gradients]
        for index, (found, initial) in enumerate(
            zip(
                stacked.layer.weight[member].split([4, 4, 9], -1),
                before[0][member].split([4, 4, 9], -1),
                strict=True,
            )
        ):
            wanted = muon_by_loops(initial, [step[index] for step in matrix], own.lr, 0.1)
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
        others = [nn.Parameter(value[member].clone()) for value in before[1:]]
        adamw = torch.optim.AdamW(others, lr=own.lr, betas=own.betas, eps=own.eps, weight_decay=0.1)
        for step in gradients:
            for parameter, gradient in zip(others, step[1:], strict=True):
                parameter.grad = gradient[member].clone()
            adamw.step()
        for found, wanted in zip([stacked.layer.bias, stacked.lm_head.weight], others, strict=True):
            torch.testing.assert_close(found[member], wanted, rtol=0, atol=1e-12)


def test_muon_equals_torchs_up_to_its_bfloat16_products():
    stacked = Stacked()
    single = nn.Parameter(stacked.layer.weight[1, :, 8:].detach().clone().T)
    rates = {"lr": 0.01, "weight_decay": 0.1}
    theirs = torch.optim.Muon([single], **rates, adjust_lr_fn="match_rms_adamw")
    ours = StackOptimizer(
        [TrainConfig(optimizer="muon", schedule="constant", **rates)] * 3, stacked, 5
    )
    before = single.detach().clone()
    for step in range(5):
        stacked.give_gradients(step)
        single.grad = stacked.layer.weight.grad[1, :, 8:].T.clone()
        theirs.step()
        ours.set_step(step + 1)
        ours.update()
    move = [x.detach() - before for x in (stacked.layer.weight[1, :, 8:].T, single)]
    assert float((move[0] - move[1]).norm() / move[1].norm()) < 0.03


@pytest.mark.parametrize("largest", [0.5, 5.0, 1e9])
def test_clipping_of_a_stack_equals_torchs_for_each_member(largest):
    stacked = Stacked()
    stacked.give_gradients(0)
    single_members = []
    for member in range(3):
        own = [nn.Parameter(torch.zeros_like(weight[member])) for weight in stacked.used]
        for parameter, shared in zip(own, stacked.used, strict=True):
            parameter.grad = shared.grad[member].clone()
        single_members.append(own)
    expected = [float(nn.utils.clip_grad_norm_(own, largest)) for own in single_members]
    norms = clip_gradients(list(stacked.parameters()), largest)
    assert norms.tolist() == pytest.approx(expected, rel=1e-12)
    for member, own in enumerate(single_members):
        for parameter, shared in zip(own, stacked.used, strict=True):
            torch.testing.assert_close(shared.grad[member], parameter.grad, rtol=1e-12, atol=0)
    assert stacked.unused[0].grad is None


def test_a_diverging_member_does_not_change_the_clipping_of_others():
    stacked = Stacked()
    stacked.give_gradients(0)
    before = stacked.layer.weight.grad[:2].clone()
    stacked.layer.weight.grad[2] = torch.inf
    clip_gradients(list(stacked.parameters()), 1e9)
    assert torch.equal(stacked.layer.weight.grad[:2], before)
    assert not stacked.layer.weight.grad[2].isfinite().any()
