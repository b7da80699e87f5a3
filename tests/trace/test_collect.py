"""Every step of a trace, recomputed by loops over Python floats from the steps before it."""

import math

import numpy as np
import pytest
import torch

from headtohead.model.attention import overrides
from headtohead.plugin import Positional
from headtohead.plugins.registry import current
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead_notebooks.trace import collect
from made import case_table, oracle
from made.array import ROLE_CHOICES, compatibility, covering, factors

REGISTRY = current()
ENTRIES = {family: factors(REGISTRY)[family] for family in ("positional", "attention", "masking")}
is_compatible = compatibility()
ROWS = [
    tuple(row.values())
    for row in covering(ENTRIES, lambda row: is_compatible(row | {"role": ROLE_CHOICES[0]}), size=1)
]
"""Compatible combinations in which every entry occurs."""

MASKS = {
    "nothing masked": {"masking": "none"},
    "fill -1e9": {"mask_value": "-1e9"},
    "fill additive": {"mask_value": "additive"},
}
CHOICES = MASKS | {
    name: choices
    for name, choices in oracle.CHOICES.items()
    if not {"attention", "architecture"} & {*choices} and "min_vocab_size" not in choices
}


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES.keys())
def test_every_step_follows_from_those_before_it(choices, traced, inputs):
    member = 1
    subject, trace = traced(member, (1, 2), **{"encoder_layers": 2} | choices)
    left, steps, read = (
        [step.name for step in trace],
        {step.name: step.values for step in trace},
        inputs(subject),
    )

    def same(name, expected):
        assert left.pop(0) == name
        np.testing.assert_allclose(steps[name], expected, rtol=1e-9, atol=1e-9, err_msg=name)

    weights = {name: value[member].tolist() for name, value in subject.model.state_dict().items()}
    loops = oracle.Oracle(
        subject.config, weights, subject.config.masking.decoder.name != "none", observe=same
    )
    scores = loops.logits(read.source, len(read.source), read.target, len(read.target))
    same("probabilities", [oracle.softmax(row) for row in scores])
    same("chosen", [row.index(max(row)) for row in scores])
    assert left == []


@case_table("names", ROWS, ids="/".join, default=6)
def test_the_trace_of_every_variant_ends_with_the_logits_of_the_model(names, inputs):
    subject = Subject(tiny_config(*names, encoder_layers=1, decoder_layers=1), seeds=(3,))
    read = inputs(subject)
    steps = {step.name: step for step in collect(subject.model, read)}
    found = torch.from_numpy(steps["logits"].values)
    torch.testing.assert_close(found, logits(subject, read)[0], rtol=0, atol=1e-9)
    assert not subject.model.training
    for path in ("encoder.0.self", "decoder.0.self", "decoder.0.cross"):
        heads = 0
        while f"{path}.head.{heads}.weights" in steps:
            weights, values, out = (
                steps[f"{path}.head.{heads}.{name}"].values
                for name in ("weights", "values", "output")
            )
            role = {"encoder.0.self": "encoder", "decoder.0.self": "decoder"}.get(path, "cross")
            part = subject.attention(role)
            if part.style.weights == "distribution":
                np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=0, atol=1e-12)
            if not overrides(part.positional, Positional, "values"):
                np.testing.assert_allclose(weights @ values, out, rtol=1e-12, atol=1e-12)
            heads += 1
        assert heads == part.context.geometry.output_heads


def test_transformed_queries_and_keys_are_traced_before_and_after(traced):
    _, trace = traced(positional="rotary")
    plain = trace["encoder.0.self.head.2.plain-keys"]
    rotated = trace["encoder.0.self.head.2.keys"]
    for position in range(4):
        for pair in range(2):
            angle = position * 10000.0 ** (-2 * pair / 4)
            first, second = plain[position, 2 * pair], plain[position, 2 * pair + 1]
            expected = first * math.cos(angle) - second * math.sin(angle)
            assert math.isclose(rotated[position, 2 * pair], expected, abs_tol=1e-12)
    assert "decoder.0.cross.head.0.plain-keys" not in {step.name for step in trace}
    subject, trace = traced(attention="qk-norm")
    gain = subject.attention("decoder").style.gain[0, 2].item()
    for name, factor in (("queries", gain), ("keys", 1.0)):
        plain, normed = (
            trace[f"decoder.0.self.head.2.{prefix}{name}"] for prefix in ("plain-", "")
        )
        expected = factor * plain / np.linalg.norm(plain, axis=-1, keepdims=True)
        np.testing.assert_allclose(normed, expected, rtol=0, atol=1e-12)


def test_mixed_heads_and_maps_are_traced_before_and_after_mixing(traced):
    subject, trace = traced(attention={"name": "talking-heads", "start": "random"})
    behind = subject.attention("decoder").style.after[0].tolist()
    path = "decoder.0.self"
    shares = [trace[f"{path}.head.{head}.unmixed-weights"] for head in range(4)]
    for head in range(4):
        mixed = sum(behind[other][head] * shares[other] for other in range(4))
        np.testing.assert_allclose(trace[f"{path}.head.{head}.weights"], mixed, rtol=0, atol=1e-12)
    example = next(step for step in trace if step.name == f"{path}.head.0.unmixed-weights").example
    assert example.startswith("row “t2”, column “t0”: e^{")
    assert example.endswith(f" = {shares[0][2, 0]:.3f}")
    subject, trace = traced(attention="differential")
    share = float(subject.attention("decoder").style.lambda_()[0].detach())
    names = [
        step.name.removeprefix(f"{path}.") for step in trace if step.part.startswith(f"{path}.")
    ]
    maps = ["queries", "keys", "scores", "mask", "filled", "unmixed-weights"]
    heads = ["values", "weights", "output", "finished"]
    assert names == [f"map.{m}.{n}" for m in range(4) for n in maps] + [
        f"head.{h}.{n}" for h in range(2) for n in heads
    ]
    first, second = (trace[f"{path}.map.{index}.unmixed-weights"] for index in (0, 1))
    np.testing.assert_allclose(
        trace[f"{path}.head.0.weights"], first - share * second, rtol=0, atol=1e-12
    )
    finished = [trace[f"{path}.head.{head}.finished"] for head in range(2)]
    np.testing.assert_array_equal(trace[f"{path}.concatenation"], np.concatenate(finished, axis=-1))


def logits(subject, read):
    """Return the logits of the model without an observer, ``[member, time, word]``."""
    members = len(subject.seeds)

    def row(ids):
        return torch.tensor([ids]).expand(members, 1, -1), torch.full((members, 1), len(ids))

    with torch.no_grad():
        return subject.model(*row(list(read.source)), *row(list(read.target)))[:, 0]
