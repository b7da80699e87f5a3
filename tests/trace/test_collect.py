"""Every step of a trace, recomputed by loops over Python floats from the steps before it."""

import math

import numpy as np
import torch

from headtohead.model.attention import overrides
from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugin import Positional
from headtohead.plugins.registry import current
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead_notebooks.trace import collect
from made import case_table
from made.array import covering

REGISTRY = current()
FAMILIES = ("positional", "attention", "masking")
ENTRIES = {family: sorted(REGISTRY.entries[family]) for family in FAMILIES}


def is_compatible(names):
    return not find_incompatibility(tiny_config(**names), {}, REGISTRY)


ROWS = [tuple(row.values()) for row in covering(ENTRIES, is_compatible, size=1)]
"""Compatible combinations in which every entry occurs."""

ACTIVATIONS = {
    "relu": lambda v: max(v, 0.0),
    "gelu": lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))),
    "swiglu": lambda v: v / (1 + math.exp(-v)),
}

CHOICES = {
    "pre-norm": {},
    "sandwich": {"norm": "sandwich"},
    "rmsnorm": {"norm": "rmsnorm", "bias": False},
    "post-norm": {"norm": "post", "final_norm": True},
    "embeddings as they are": {"embedding_scale": "one"},
    "second attention of the decoder": {"quirks": {"cross_attention_memory": "decoder"}, "norm": "post"},
    "feed-forward after each": {"quirks": {"decoder_feed_forward": "after-each"}},
    "shared parts": {"quirks": {"shared_modules": ["norm", "feed-forward"]}, "norm": "post"},
    "gelu": {"feed_forward": "gelu"},
    "swiglu": {"feed_forward": "swiglu"},
    "no biases, output tied": {"bias": False, "tie_embeddings": "output"},
    "nothing masked": {"masking": "none"},
    "fill -1e9": {"mask_value": "-1e9"},
    "fill additive": {"mask_value": "additive"},
    "positions by row": {"positional": {"name": "sinusoidal-by-row"}},
}


@case_table("choices", CHOICES.values(), ids=CHOICES.keys(), default=6)
def test_every_step_follows_from_those_before_it(choices, traced, inputs):
    member = 1
    subject, trace = traced(member, (1, 2), encoder_layers=2, **choices)
    Recomputed(subject, trace, member, inputs(subject)).check()


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
                steps[f"{path}.head.{heads}.{name}"].values for name in ("weights", "values", "output")
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
        plain, normed = (trace[f"decoder.0.self.head.2.{prefix}{name}"] for prefix in ("plain-", ""))
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
    names = [step.name.removeprefix(f"{path}.") for step in trace if step.part.startswith(f"{path}.")]
    maps = ["queries", "keys", "scores", "mask", "filled", "unmixed-weights"]
    heads = ["values", "weights", "output", "finished"]
    assert names == [f"map.{m}.{n}" for m in range(4) for n in maps] + [
        f"head.{h}.{n}" for h in range(2) for n in heads
    ]
    first, second = (trace[f"{path}.map.{index}.unmixed-weights"] for index in (0, 1))
    np.testing.assert_allclose(trace[f"{path}.head.0.weights"], first - share * second, rtol=0, atol=1e-12)
    finished = [trace[f"{path}.head.{head}.finished"] for head in range(2)]
    np.testing.assert_array_equal(trace[f"{path}.concatenation"], np.concatenate(finished, axis=-1))


def logits(subject, read):
    """Return the logits of the model without an observer, ``[member, time, word]``."""
    members = len(subject.seeds)

    def row(ids):
        return torch.tensor([ids]).expand(members, 1, -1), torch.full((members, 1), len(ids))

    with torch.no_grad():
        return subject.model(*row(list(read.source)), *row(list(read.target)))[:, 0]


class Recomputed:
    """Recomputes each step in turn from the steps and the weights of one member."""

    def __init__(self, subject, trace, member, read):
        self.model, self.quirks = subject.config.model, subject.config.quirks
        self.feed_forward, self.norm_name = subject.config.feed_forward, subject.config.norm.decoder.name
        self.by_row = subject.config.positional.encoder.name == "sinusoidal-by-row"
        self.weights = {name: value[member].tolist() for name, value in subject.model.state_dict().items()}
        self.trace = {step.name: step.values.tolist() for step in trace}
        self.left = [step.name for step in trace]
        self.read = read

    def check(self):
        memory = self.side("encoder", self.read.source, 2, None)
        out = self.side("decoder", self.read.target, 1, memory)
        tie_embeddings = self.model.tie_embeddings == "output"
        if tie_embeddings:
            table = self.weights["target_embedding.weight"]
            scores = [[_dot(row, word) for word in table] for row in out]
        else:
            scores = self.linear(out, "lm_head")
        self.same("logits", scores)
        shares = [[math.exp(value) / sum(map(math.exp, row)) for value in row] for row in scores]
        self.same("probabilities", shares)
        self.same("chosen", [row.index(max(row)) for row in scores])
        assert self.left == []

    def same(self, name, expected):
        assert self.left.pop(0) == name
        np.testing.assert_allclose(self.trace[name], expected, rtol=1e-9, atol=1e-9, err_msg=name)

    def side(self, side, ids, layers, memory):
        table = "source_embedding" if side == "encoder" else "target_embedding"
        self.same(f"{side}.ids", list(ids))
        x = [self.weights[f"{table}.weight"][index] for index in ids]
        self.same(f"{side}.embeddings", x)
        if self.model.embedding_scale == "sqrt-d_model":
            x = [[value * math.sqrt(len(row)) for value in row] for row in x]
            self.same(f"{side}.scaled", x)
        waves = [[self.wave(position, i, len(row)) for i in range(len(row))] for position, row in enumerate(x)]
        self.same(f"{side}.positions", waves)
        x = _plus(x, waves)
        self.same(f"{side}.sum", x)
        for layer in range(layers):
            at = f"{side}.{layer}"
            x = self.branch(x, f"{at}.self", f"{at}.attention", self.attention, None)
            if side == "decoder":
                if self.quirks.decoder_feed_forward == "after-each":
                    x = self.branch(x, f"{at}.between", f"{at}.between", self.forward)
                read = None if self.quirks.cross_attention_memory == "decoder" else memory
                x = self.branch(x, f"{at}.cross", f"{at}.cross", self.attention, read)
            x = self.branch(x, f"{at}.feed-forward", f"{at}.feed_forward", self.forward)
        if f"{side}_norm.weight" in self.weights or self.left[0] == f"{side}.norm":
            x = self.norm(x, f"{side}_norm")
            self.same(f"{side}.norm", x)
        return x

    def wave(self, position, i, width):
        angle = (0 if self.by_row else position) / 10000 ** ((i - i % 2) / width)
        return math.cos(angle) if i % 2 else math.sin(angle)

    def branch(self, x, path, part, inner, *rest):
        if self.model.norm != "post":
            normed = self.norm(x, f"{part}_branch.norm")
            self.same(f"{path}.norm", normed)
            added = inner(normed, path, part, *rest)
            if self.model.norm == "sandwich":
                added = self.norm(added, f"{part}_branch.post_norm")
                self.same(f"{path}.post_norm", added)
            total = _plus(x, added)
            self.same(f"{path}.residual", total)
            return total
        total = _plus(x, inner(x, path, part, *rest))
        self.same(f"{path}.residual", total)
        normed = self.norm(total, f"{part}_branch.norm")
        self.same(f"{path}.norm", normed)
        return normed

    def norm(self, x, name):
        name = "shared.norm" if "norm" in self.quirks.shared_modules else name
        gain = self.weights[f"{name}.weight"][0]
        bias = self.weights.get(f"{name}.bias", [[0.0] * len(gain)])[0]
        out = []
        for row in x:
            mean = 0.0 if self.norm_name == "rmsnorm" else sum(row) / len(row)
            scale = math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + self.model.norm_eps)
            out.append([(v - mean) / scale * g + b for v, g, b in zip(row, gain, bias, strict=True)])
        return out

    def linear(self, x, name, first=0, last=None):
        weight = self.weights[f"{name}.weight"]
        outputs = range(first, len(weight[0]) if last is None else last)
        bias = self.weights[f"{name}.bias"][0] if self.model.bias else [0.0] * len(weight[0])
        return [[sum(v * weight[i][o] for i, v in enumerate(row)) + bias[o] for o in outputs] for row in x]

    def forward(self, x, path, part):
        part = "shared.feed_forward" if "feed-forward" in self.quirks.shared_modules else part
        inner = self.linear(x, f"{part}.inner")
        kind = self.feed_forward.decoder.name
        if kind == "swiglu":
            inner, gate = ([row[first:][: self.model.d_ff] for row in inner] for first in (0, self.model.d_ff))
        self.same(f"{path}.inner", inner)
        active = [[ACTIVATIONS[kind](v) for v in row] for row in inner]
        self.same(f"{path}.activated", active)
        if kind == "swiglu":
            self.same(f"{path}.gate", gate)
            active = [[a * g for a, g in zip(*rows, strict=True)] for rows in zip(active, gate, strict=True)]
            self.same(f"{path}.gated", active)
        out = self.linear(active, f"{part}.outer")
        self.same(f"{path}.output", out)
        return out

    def attention(self, x, path, part, memory):
        d = self.model.d_model
        read = x if memory is None else memory
        if memory is None:
            q, k, v = (self.linear(x, f"{part}.queries_keys_values", n * d, (n + 1) * d) for n in range(3))
        else:
            q = self.linear(x, f"{part}.queries")
            k, v = (self.linear(read, f"{part}.keys_values", n * d, (n + 1) * d) for n in range(2))
        joined = [[] for _ in x]
        for head in range(self.model.heads):
            for row, found in zip(joined, self.head(q, k, v, f"{path}.head.{head}", head), strict=True):
                row.extend(found)
        self.same(f"{path}.concatenation", joined)
        out = self.linear(joined, f"{part}.output")
        self.same(f"{path}.projection", out)
        return out

    def head(self, q, k, v, path, head):
        width = self.model.d_model // self.model.heads
        q, k, v = ([row[head * width : (head + 1) * width] for row in tensor] for tensor in (q, k, v))
        for name, expected in (("queries", q), ("keys", k), ("values", v)):
            self.same(f"{path}.{name}", expected)
        scores = [[_dot(query, key) / math.sqrt(width) for key in k] for query in q]
        self.same(f"{path}.scores", scores)
        if self.left[0] == f"{path}.mask":
            causal = path.startswith("decoder") and ".self." in path
            keep = [[not causal or j <= i for j in range(len(k))] for i in range(len(q))]
            self.same(f"{path}.mask", keep)
            scores = [
                [self.fill(s) if not kept else s for s, kept in zip(*rows, strict=True)]
                for rows in zip(scores, keep, strict=True)
            ]
            self.same(f"{path}.filled", scores)
        powers = [[math.exp(s - max(row)) for s in row] for row in scores]
        weights = [[value / sum(row) for value in row] for row in powers]
        self.same(f"{path}.weights", weights)
        out = [[_dot(row, column) for column in zip(*v, strict=True)] for row in weights]
        self.same(f"{path}.output", out)
        return out

    def fill(self, score):
        return {"-inf": -math.inf, "-1e9": -1e9, "additive": score - 1e9}[self.model.mask_value]


def _dot(first, second):
    return sum(a * b for a, b in zip(first, second, strict=True))


def _plus(first, second):
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(first, second, strict=True)]
