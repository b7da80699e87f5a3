"""Every style against its paper's formula in loops over Python floats, forward, map and output.

The loops use the weights of the projections and share no code with the styles. In the default tier every style, every
mask, including a mask with rows that hide every key, and every mask value occurs; in the slow tier every two of them
occur together.
"""

import math

import pytest
import torch

from headtohead.model.attention_context import AttentionContext
from headtohead.testing.subject import Subject, with_mask_value
from headtohead.testing.tiny import tiny_config
from made import case_table
from made.array import covering

HEADS, WIDTH = 4, 16
SIZE = WIDTH // HEADS

STYLES = {
    "multi-query": "multi-query",
    "qk-norm": "qk-norm",
    "qk-norm by root mean square": {"name": "qk-norm", "norm": "rms"},
    "talking-heads": {"name": "talking-heads", "start": "random"},
    "differential": "differential",
    "sigmoid": "sigmoid",
    "linear": "linear",
    "uniform": "uniform",
    "random": {"name": "random", "max_length": 9},
    "random, not trained": {"name": "random", "max_length": 9, "trained": False},
    "gated": "gated",
    "gated per head": {"name": "gated", "per": "head"},
    "exclusive": "exclusive",
    "value-residual": "value-residual",
    "soft-cap": {"name": "soft-cap", "cap": 0.7},
    "sinks": "sinks",
    "short-convolution": {"name": "short-convolution", "kernel": 3},
    "smear": "smear",
    "value residual, then gate": {"name": "combined", "first": "value-residual", "second": "gated"},
    "exclusive, then gate": {"name": "combined", "first": "exclusive", "second": "gated"},
    "gate, then exclusive": {"name": "combined", "first": "gated", "second": "exclusive"},
}
MASKS = ("nothing masked", "padding-causal", "padding", "window", "prefix", "rows without a key")
CLOSE = {"-inf": 1e-12, "-1e9": 1e-12, "additive": 1e-6}
"""Subtracting 1e9 leaves seven digits of a float64 score, in rows where every key is masked."""


def subject_of(style, role, mask_value="-inf"):
    subject = Subject(tiny_config("none", style, mask_value=mask_value))
    return subject, subject.attention(role)


def mask_of(name, role, subject):
    """Return ``[member, batch, query, key]`` or None."""
    if name == "nothing masked":
        return None
    if name == "rows without a key":
        generator = torch.Generator().manual_seed(3)
        mask = torch.rand(2, 3, *subject.times(role), generator=generator) < 0.5
        mask[:, 0, 1] = False
        return mask
    width = {"window": {"width": 2}, "prefix": {"length": 2}}.get(name, {})
    role_only = "decoder" if name in ("window", "prefix", "padding-causal") else role
    other = Subject(tiny_config(masking={role_only: {"name": name, **width}}))
    return other.mask(role)


GRID = {"style": list(STYLES), "mask": MASKS, "mask_value": list(CLOSE)}
FIRST = covering(GRID, size=1)
ROWS = [tuple(row.values()) for row in covering(GRID, first=FIRST)]


@case_table(("style", "name", "mask_value"), ROWS, default=len(FIRST))
def test_style_equals_its_formula_in_loops(style, name, mask_value):
    style = STYLES[style]
    for role in ("decoder", "cross"):
        subject, attention = subject_of(style, role, mask_value)
        mask = mask_of(name, role, subject)
        x, memory = subject.activations(role)
        view = subject.attention_context(role, mask=mask)
        seen = {}
        with with_mask_value(subject.model, mask_value), torch.no_grad():
            found, _ = attention(x, memory, view)
            attention(x, memory, view, None, seen.__setitem__)
        for member, row in ((0, 0), (1, 2)):
            visible = None if mask is None else mask[member, row].tolist()
            loops = Loops(attention, member, visible, mask_value)
            read = (x if memory is None else memory)[member, row].tolist()
            maps, out = loops.attend(x[member, row].tolist(), read)
            same(seen["weights"][member, row], maps, CLOSE[mask_value])
            same(found[member, row], out, CLOSE[mask_value])


def same(found, expected, close):
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=close)


class Loops:
    """Attention of a sentence and member, in lists."""

    def __init__(self, attention, member, mask, fill):
        self.name = type(attention.style).__name__
        parts = getattr(attention.style, "styles", ())
        self.parts = {
            type(part).__name__: f"style.styles.{number}" for number, part in enumerate(parts)
        }
        self.parts = self.parts or {self.name: "style"}
        self.options = attention.style.options
        self.layer = attention.context.layer
        self.mask, self.fill = mask, fill
        self.weights = {
            name: value[member].tolist() for name, value in attention.state_dict().items()
        }

    def attend(self, x, read, first=None):
        if self.name == "ShortConvolution":
            x = read = self.convolved(x)
        q, k, v = self.projected(x, read)
        if at := self.parts.get("ValueResidual"):
            shares = self.weights[f"{at}.shares"]
            v = [
                [weighted(rows, shares) for rows in zip(*pair, strict=True)]
                for pair in zip(first or v, v, strict=True)
            ]
        maps = getattr(self, self.name, self.SplitHeads)(q, k)
        width = len(v[0][0])
        heads = [
            [
                [
                    sum(w * v[self.value(head)][j][c] for j, w in enumerate(row))
                    for c in range(width)
                ]
                for row in matrix
            ]
            for head, matrix in enumerate(maps)
        ]
        if self.name == "Differential":
            heads = self.finished(heads)
        for name, at in self.parts.items():
            if name == "Gated":
                heads = self.gated(heads, x, self.weights[f"{at}.gate"])
            elif name == "Exclusive":
                heads = [
                    [exclusive(*rows) for rows in zip(*pair, strict=True)]
                    for pair in zip(heads, v, strict=True)
                ]
        joined = [[c for head in heads for c in head[i]] for i in range(len(x))]
        return maps, affine(joined, self.weights, "output", 0, WIDTH)

    def value(self, head):
        return 0 if self.name == "MultiQuery" else head

    def projected(self, x, read):
        """Return queries, keys and values, ``[head][time][width]``."""
        counts = {
            "MultiQuery": (HEADS, 1, 1),
            "Differential": (HEADS, HEADS, HEADS // 2),
            "Uniform": (0, 0, HEADS),
            "Random": (0, 0, HEADS),
        }
        heads = counts.get(self.name, (HEADS,) * 3)
        widths = (SIZE, SIZE, 2 * SIZE if self.name == "Differential" else SIZE)
        found, start = [], 0
        for index, (count, width) in enumerate(zip(heads, widths, strict=True)):
            if "queries_keys_values.weight" in self.weights:
                part, side, first = "queries_keys_values", x, start
            else:
                part, side = ("queries", x) if index == 0 else ("keys_values", read)
                first = 0 if index < 2 else heads[1] * widths[1]
            start += count * width
            found.append(
                [
                    affine(side, self.weights, part, first + head * width, width)
                    for head in range(count)
                ]
            )
        self.queries, self.keys = len(x), len(read)
        return found

    # -- styles ----------------------------------------------------------------------------------

    def SplitHeads(self, q, k):
        return [self.softmax(products(q[head], k[head], SIZE**-0.5)) for head in range(HEADS)]

    def convolved(self, x):
        kernel = self.weights["style.kernel"]
        return [
            [
                row[c] + sum(weights[c] * x[t - k][c] for k, weights in enumerate(kernel) if t >= k)
                for c in range(WIDTH)
            ]
            for t, row in enumerate(x)
        ]

    def gated(self, heads, x, gate):
        width = len(gate[0]) // HEADS

        def factor(row, column):
            return 1 / (1 + math.exp(-sum(value * gate[c][column] for c, value in enumerate(row))))

        return [
            [
                [value * factor(x[i], head * width + c % width) for c, value in enumerate(row)]
                for i, row in enumerate(rows)
            ]
            for head, rows in enumerate(heads)
        ]

    def SoftCap(self, q, k):
        scores = (products(q[head], k[head], SIZE**-0.5) for head in range(HEADS))
        return [
            self.softmax([[0.7 * math.tanh(s / 0.7) for s in row] for row in rows])
            for rows in scores
        ]

    def Sinks(self, q, k):
        maps = []
        for head, sink in enumerate(self.weights["style.sinks"]):
            seen = self.visible(
                [[math.exp(s) for s in row] for row in products(q[head], k[head], SIZE**-0.5)]
            )
            maps.append([[item / (math.exp(sink) + sum(row)) for item in row] for row in seen])
        return maps

    def MultiQuery(self, q, k):
        return [self.softmax(products(query, k[0], SIZE**-0.5)) for query in q]

    def QkNorm(self, q, k):
        maps = []
        for head in range(HEADS):
            gain = self.weights["style.gain"][head]
            queries, keys = ([self.normalised(row) for row in vectors[head]] for vectors in (q, k))
            scale = gain if self.options.norm == "unit" else gain / math.sqrt(SIZE)
            maps.append(self.softmax(products(queries, keys, scale)))
        return maps

    def normalised(self, row):
        squares = sum(value * value for value in row)
        size = math.sqrt(squares if self.options.norm == "unit" else squares / len(row))
        return [value / size for value in row]

    def TalkingHeads(self, q, k):
        plain = [products(q[head], k[head], SIZE**-0.5) for head in range(HEADS)]
        logits = mixed(plain, self.weights["style.before"])
        return mixed([self.softmax(score) for score in logits], self.weights["style.after"])

    def Differential(self, q, k):
        first, second = (
            [
                self.softmax(products(q[head], k[head], SIZE**-0.5))
                for head in range(start, HEADS, 2)
            ]
            for start in (0, 1)
        )
        q1, k1, q2, k2 = self.weights["style.vectors"]
        share = math.exp(dot(q1, k1)) - math.exp(dot(q2, k2)) + self.first_share()
        return [
            [
                [a - share * b for a, b in zip(*rows, strict=True)]
                for rows in zip(*pair, strict=True)
            ]
            for pair in zip(first, second, strict=True)
        ]

    def first_share(self):
        return 0.8 - 0.6 * math.exp(-0.3 * self.layer)

    def finished(self, heads):
        gain = self.weights["style.gain"]

        def normalised(row):
            size = math.sqrt(sum(c * c for c in row) / len(row) + 1e-5)
            return [
                value / size * g * (1 - self.first_share())
                for value, g in zip(row, gain, strict=True)
            ]

        return [[normalised(row) for row in head] for head in heads]

    def Sigmoid(self, q, k):
        maps = []
        for head in range(HEADS):
            scores = products(q[head], k[head], SIZE**-0.5)
            counts = [
                sum(self.may_attend(i, j) for j in range(self.keys)) for i in range(self.queries)
            ]
            pairs = zip(scores, counts, strict=True)
            maps.append(
                self.visible([[1 / (1 + n * math.exp(-s)) for s in row] for row, n in pairs])
            )
        return maps

    def Linear(self, q, k):
        def feature(row):
            return [value + 1 if value > 0 else math.exp(value) for value in row]

        maps = []
        for head in range(HEADS):
            queries, keys = ([feature(row) for row in vectors[head]] for vectors in (q, k))
            rows = self.visible(products(queries, keys, 1.0))
            maps.append([[score / (sum(row) or 1.0) for score in row] for row in rows])
        return maps

    def Uniform(self, q, k):
        return [self.softmax([[0.0] * self.keys for _ in range(self.queries)])] * HEADS

    def Random(self, q, k):
        table = self.weights["style.table"]
        return [
            self.softmax(
                [[table[head][i][j] for j in range(self.keys)] for i in range(self.queries)]
            )
            for head in range(HEADS)
        ]

    # -- parts -----------------------------------------------------------------------------------

    def may_attend(self, query, key):
        return self.mask is None or self.mask[query][key]

    def visible(self, weights):
        """Return weights with zeros at masked keys."""
        return [
            [weight if self.may_attend(i, j) else 0.0 for j, weight in enumerate(row)]
            for i, row in enumerate(weights)
        ]

    def softmax(self, scores):
        """Return the weights of a head, masked with the mask value ``fill``."""
        rows = []
        for i, row in enumerate(scores):
            masked_scores = [
                score if self.may_attend(i, j) else self.masked(score)
                for j, score in enumerate(row)
            ]
            largest = max(masked_scores)
            exponentials = [
                0.0 if largest == -math.inf else math.exp(score - largest)
                for score in masked_scores
            ]
            rows.append([item / (sum(exponentials) or 1.0) for item in exponentials])
        return rows

    def masked(self, score):
        return {"-inf": -math.inf, "-1e9": -1e9, "additive": score - 1e9}[self.fill]


def affine(x, weights, part, first, width):
    weight, bias = weights[f"{part}.weight"], weights[f"{part}.bias"][0]
    return [
        [
            sum(value * weight[c][o] for c, value in enumerate(row)) + bias[o]
            for o in range(first, first + width)
        ]
        for row in x
    ]


def products(queries, keys, scale):
    return [[dot(query, key) * scale for key in keys] for query in queries]


def mixed(maps, matrix):
    """Return ``[to][query][key]`` of ``[from][query][key]`` and ``[from][to]``."""
    return [
        [
            [
                sum(maps[f][i][j] * matrix[f][t] for f in range(HEADS))
                for j in range(len(maps[0][0]))
            ]
            for i in range(len(maps[0]))
        ]
        for t in range(HEADS)
    ]


def weighted(rows, shares):
    return [
        sum(share * value for share, value in zip(shares, values, strict=True))
        for values in zip(*rows, strict=True)
    ]


def exclusive(output, value):
    """Return the part of an output that is orthogonal to a value."""
    along = dot(output, value) / dot(value, value)
    return [o - along * v for o, v in zip(output, value, strict=True)]


def dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("time", [1, 31, 32, 33, 64, 97])
def test_sums_over_blocks_equal_the_causal_sum(time):
    """Linear attention over more keys than fit into a block, some of them padding."""
    subject = Subject(tiny_config("none", "linear", "padding-causal"))
    attention = subject.attention("decoder")
    generator = torch.Generator().manual_seed(time)
    x = torch.randn(2, 1, time, WIDTH, generator=generator, dtype=torch.float64)
    position = torch.arange(time)
    not_padding = position < max(1, time - 3)
    mask = (position[None, :] <= position[:, None]) & not_padding
    row, declared = position[None], frozenset({"hides-future", "shows-the-rest"})
    view = AttentionContext(
        row, row, mask[None, None, None].expand(2, 1, 1, -1, -1), declared=declared
    )
    assert view.pattern == ("prefix" if time > 1 else "same")
    with torch.no_grad():
        found, _ = attention(x, None, view)
        _, expected = Loops(attention, 1, mask.tolist(), "-inf").attend(
            x[1, 0].tolist(), x[1, 0].tolist()
        )
    same(found[1, 0], expected, 1e-11)


def test_values_of_every_layer_are_mixed_with_those_of_the_first_layer():
    subject = Subject(tiny_config("none", "value-residual", decoder_layers=3))
    x, mask = subject.activations("decoder")[0], subject.mask("decoder")
    context = subject.attention_context("decoder", mask=mask)
    layers, first = [layer.attention for layer in subject.model.decoder], None
    first_values = None
    for number, attention in enumerate(layers):
        inputs = x.roll(number, dims=-1)
        found, first_values = attention(inputs, None, context, first_values=first_values)
        loops, rows = Loops(attention, 1, mask[1, 2].tolist(), "-inf"), inputs[1, 2].tolist()
        first = first or loops.projected(rows, rows)[2]
        same(found[1, 2].detach(), loops.attend(rows, rows, first)[1], 1e-12)
