"""The forward pass of a member for a sentence pair, in lists of floats that share no code with the model."""

import math

from headtohead_notebooks.quirks import NotebookOptions

CHOICES = {
    "pre-norm": {},
    "post-norm": {"norm": "post"},
    "post-norm and a final norm": {"norm": "post", "final_norm": True},
    "pre-norm without a final norm": {"final_norm": False},
    "gelu": {"feed_forward": "gelu"},
    "squared relu in the decoder": {"feed_forward": {"decoder": "relu2"}},
    "swiglu": {"feed_forward": "swiglu"},
    "geglu without biases": {"feed_forward": "geglu", "bias": False},
    "rmsnorm": {"norm": "rmsnorm", "norm_eps": 0.1},
    "sandwich": {"norm": "sandwich", "decoder_layers": 2},
    "embeddings as they are": {"embedding_scale": "one"},
    "output tied": {"tie_embeddings": "output"},
    "all tied": {"tie_embeddings": "all"},
    "no biases": {"bias": False},
    "norm eps": {"norm_eps": 0.1},
    "two encoder layers": {"encoder_layers": 2, "decoder_layers": 1},
    "second attention of the decoder": {
        "decoder_layers": 2,
        "quirks": {"notebooks": {"cross_attention_memory": "decoder"}},
    },
    "second attention of the decoder, post-norm": {
        "norm": "post",
        "quirks": {"notebooks": {"cross_attention_memory": "decoder"}},
    },
    "one table": {"tie_embeddings": "embeddings"},
    "more rows than words": {"min_vocab_size": 15},
    "one table of more rows than words": {
        "tie_embeddings": "embeddings",
        "min_vocab_size": 15,
    },
    "shared norm": {"decoder_layers": 2, "shared_modules": ["norm"]},
    "shared feed-forward": {
        "norm": "post",
        "final_norm": True,
        "shared_modules": ["feed-forward"],
    },
    "feed-forward after each attention": {
        "quirks": {"notebooks": {"decoder_feed_forward": "after-each"}}
    },
    "all places shared": {
        "norm": "post",
        "shared_modules": ["norm", "feed-forward"],
        "quirks": {"notebooks": {"decoder_feed_forward": "after-each"}},
    },
    "positions by row": {"positional": {"name": "sinusoidal-by-row"}},
    "learned positions": {"positional": "learned"},
    "decoder only": {"architecture": "decoder-only", "decoder_layers": 2},
    "decoder only, post-norm and tied": {
        "architecture": "decoder-only",
        "norm": "post",
        "tie_embeddings": "output",
    },
    "smeared embeddings": {"attention": "smear", "encoder_layers": 2},
    "smeared embeddings, decoder only": {
        "architecture": "decoder-only",
        "attention": {"name": "smear", "gate_width": 4},
    },
    "value embeddings": {"attention": "value-embedding", "encoder_layers": 2},
    "value embeddings in the first and last layer, decoder only": {
        "architecture": "decoder-only",
        "decoder_layers": 3,
        "attention": {"name": "value-embedding", "ends": 1},
    },
    "mask on embeddings": {"attention": "embedding-softmax", "norm": "post"},
    "mask on embeddings, pre-norm": {"attention": "embedding-softmax"},
}
"""Arguments of ``tiny_config`` for which the loops are defined."""


class Oracle:
    """The steps of a forward pass.

    Args:
        config: The configuration of the model.
        weights: Its weights by name, those of the member, as lists.
        masked: Whether padding and later target tokens are masked; if not, nothing is.
        row: Row of the pair in its batch.
        observe: Called with the name and the values of every step, in their order, as in a trace.
    """

    def __init__(self, config, weights, masked, row=0, observe=lambda name, values: None):
        self.config, self.model = config, config.model
        self.quirks = config.quirks.get("notebooks", NotebookOptions())
        self.weights, self.masked, self.row, self.observe = weights, masked, row, observe

    def logits(self, source, source_length, target, target_length):
        """Return the logits after each target token, ``[time][vocab]``."""
        if self.model.architecture == "decoder-only":
            ids = source[:source_length] + target + [target[-1]] * (len(source) - source_length)
            found = [
                self.lm_head(row) for row in self.side("decoder", ids, len(ids))[source_length:]
            ]
        else:
            memory = self.side("encoder", source, source_length), source_length
            found = [
                self.lm_head(row) for row in self.side("decoder", target, target_length, *memory)
            ]
        self.observe("logits", found)
        return found

    def side(self, side, ids, length, memory=None, memory_length=0):
        """Return the output of the encoder or the decoder."""
        is_causal, times = side == "decoder", range(len(ids))
        x = self.embed(ids, side)
        own = [
            [not self.masked or (j < length and (j <= i or not is_causal)) for j in times]
            for i in times
        ]
        if self.quirks.cross_attention_memory == "decoder":
            read, keys, read_length = None, len(ids), length
        else:
            read, keys, read_length = memory, len(memory or ()), memory_length
        cross = [[not self.masked or j < read_length for j in range(keys)] for _ in times]
        for layer in range(self.model.decoder_layers if is_causal else self.model.encoder_layers):
            at = f"{side}.{layer}"
            x = self.branch(x, f"{at}.self", f"{at}.attention", self.attention, None, own)
            if memory is not None:
                if self.quirks.decoder_feed_forward == "after-each":
                    part = f"{at}.attention_branch.feed_forward"
                    x = self.branch(x, f"{at}.between", part, self.feed_forward)
                x = self.branch(x, f"{at}.cross", f"{at}.cross", self.attention, read, cross)
            x = self.branch(x, f"{at}.feed-forward", f"{at}.feed_forward", self.feed_forward)
        if self.model.norm == "pre" if self.model.final_norm is None else self.model.final_norm:
            x = self.norm(x, f"{side}_norm")
            self.observe(f"{side}.norm", x)
        return x

    def embed(self, ids, side):
        self.ids = ids
        one_table = side == "decoder" or self.model.tie_embeddings in ("all", "embeddings")
        table = self.weights["target_embedding.weight" if one_table else "source_embedding.weight"]
        self.observe(f"{side}.ids", ids)
        x = [table[index] for index in ids]
        self.observe(f"{side}.embeddings", x)
        if self.model.embedding_scale == "sqrt-d_model":
            x = [[value * math.sqrt(len(row)) for value in row] for row in x]
            self.observe(f"{side}.scaled", x)
        x = self.smeared(x, f"{side}.0.attention.style")
        by_row = self.config.entry("positional", side).name == "sinusoidal-by-row"
        waves = self.weights.get(f"positionals.{side}.table") or [
            [wave(self.row if by_row else time, i, len(row)) for i in range(len(row))]
            for time, row in enumerate(x)
        ]
        waves = waves[: len(x)]
        self.observe(f"{side}.positions", waves)
        x = plus(x, waves)
        self.observe(f"{side}.sum", x)
        return x

    def smeared(self, x, style):
        if f"{style}.gate" not in self.weights:
            return x
        (share,), gates = self.weights[f"{style}.share"], self.weights[f"{style}.gate"]
        scores = [
            sum(gate * value for (gate,), value in zip(gates, row, strict=False)) for row in x[1:]
        ]
        shares = [share / (1 + math.exp(-score)) for score in scores]
        return [
            x[0],
            *(
                [own + part * before for own, before in zip(row, last, strict=True)]
                for row, last, part in zip(x[1:], x, shares, strict=False)
            ),
        ]

    def block(self, part):
        """Return the name of the residual block of a part of a layer."""
        if part.endswith("attention_branch.feed_forward"):
            return f"{part}_block"
        within = f"{part}_branch.block"
        is_wrapped = any(name.startswith(within) for name in self.weights)
        return within if is_wrapped else f"{part}_branch"

    def branch(self, x, path, part, inner, *rest):
        if self.model.norm == "post":
            total = plus(x, inner(x, path, part, *rest))
            self.observe(f"{path}.residual", total)
            normed = self.norm(total, f"{self.block(part)}.norm")
            self.observe(f"{path}.norm", normed)
            return normed
        normed = self.norm(x, f"{self.block(part)}.norm")
        self.observe(f"{path}.norm", normed)
        added = inner(normed, path, part, *rest)
        if self.model.norm == "sandwich":
            added = self.norm(added, f"{self.block(part)}.post_norm")
            self.observe(f"{path}.post_norm", added)
        total = plus(x, added)
        self.observe(f"{path}.residual", total)
        return total

    def norm(self, x, name):
        name = "shared.norm" if "norm" in self.model.shared_modules else name
        gain = self.weights[f"{name}.weight"][0]
        bias = self.weights.get(f"{name}.bias", [[0.0] * len(gain)])[0]
        out = []
        for row in x:
            mean = 0.0 if self.config.norm.decoder.name == "rmsnorm" else sum(row) / len(row)
            scale = math.sqrt(
                sum((value - mean) ** 2 for value in row) / len(row) + self.model.norm_eps
            )
            out.append(
                [
                    (value - mean) / scale * g + b
                    for value, g, b in zip(row, gain, bias, strict=True)
                ]
            )
        return out

    def linear(self, x, name, first=0, last=None):
        weight = self.weights[f"{name}.weight"]
        outputs = range(first, len(weight[0]) if last is None else last)
        bias = self.weights[f"{name}.bias"][0] if self.model.bias else [0.0] * len(weight[0])
        return [
            [sum(v * weight[i][o] for i, v in enumerate(row)) + bias[o] for o in outputs]
            for row in x
        ]

    def attention(self, x, path, part, memory, keep):
        is_own = path.startswith("decoder") and path.endswith("self")
        if is_own and self.config.attention.decoder.name == "embedding-softmax":
            return softmax_of_embeddings(x, keep)
        d = self.model.d_model
        if memory is None:
            q, k, v = (
                self.linear(x, f"{part}.queries_keys_values", n * d, (n + 1) * d) for n in range(3)
            )
            if f"{part}.style.table" in self.weights:
                table, (a, b) = (
                    self.weights[f"{part}.style.table"],
                    self.weights[f"{part}.style.shares"],
                )
                own = [table[index] for index in self.ids]
                v = plus(
                    [[a * value for value in row] for row in v],
                    [[b * value for value in row] for row in own],
                )
        else:
            q = self.linear(x, f"{part}.queries")
            k, v = (
                self.linear(memory, f"{part}.keys_values", n * d, (n + 1) * d) for n in range(2)
            )
        joined = [[] for _ in x]
        for head in range(self.model.heads):
            width = d // self.model.heads
            own = (
                [row[head * width : (head + 1) * width] for row in tensor] for tensor in (q, k, v)
            )
            for row, found in zip(
                joined, self.head(*own, f"{path}.head.{head}", keep), strict=True
            ):
                row.extend(found)
        self.observe(f"{path}.concatenation", joined)
        out = self.linear(joined, f"{part}.output")
        self.observe(f"{path}.projection", out)
        return out

    def head(self, q, k, v, path, keep):
        for name, values in (("queries", q), ("keys", k), ("values", v)):
            self.observe(f"{path}.{name}", values)
        scores = [[dot(query, key) / math.sqrt(len(query)) for key in k] for query in q]
        self.observe(f"{path}.scores", scores)
        if self.masked:
            self.observe(f"{path}.mask", keep)
            scores = [
                [score if kept else self.fill(score) for score, kept in zip(*rows, strict=True)]
                for rows in zip(scores, keep, strict=True)
            ]
            self.observe(f"{path}.filled", scores)
        weights = [softmax(row) for row in scores]
        self.observe(f"{path}.weights", weights)
        out = [[dot(row, column) for column in zip(*v, strict=True)] for row in weights]
        self.observe(f"{path}.output", out)
        return out

    def fill(self, score):
        return {"-inf": -math.inf, "-1e9": -1e9, "additive": score - 1e9}[self.model.mask_value]

    def feed_forward(self, x, path, part):
        part = "shared.feed_forward" if "feed-forward" in self.model.shared_modules else part
        kind = self.config.entry(
            "feed_forward", "encoder" if part.startswith("encoder") else "decoder"
        ).name
        inner = self.linear(x, f"{part}.inner")
        if is_gated := kind in ("swiglu", "geglu"):
            inner, gate = (
                [row[first:][: self.model.d_ff] for row in inner] for first in (0, self.model.d_ff)
            )
        self.observe(f"{path}.inner", inner)
        active = [[activate(kind, value) for value in row] for row in inner]
        self.observe(f"{path}.activated", active)
        if is_gated:
            self.observe(f"{path}.gate", gate)
            active = [
                [a * g for a, g in zip(*rows, strict=True)]
                for rows in zip(active, gate, strict=True)
            ]
            self.observe(f"{path}.gated", active)
        out = self.linear(active, f"{part}.outer")
        self.observe(f"{path}.output", out)
        return out

    def lm_head(self, row):
        if self.model.tie_embeddings in ("none", "embeddings"):
            return self.linear([row], "lm_head")[0]
        return [dot(row, word) for word in self.weights["target_embedding.weight"]]


def softmax_of_embeddings(x, keep):
    """Return the output of embedding-softmax: masked activations, whose softmax is the weights of the tokens."""
    masked = [
        [value if kept else value - 1e9 for value, kept in zip(*pair, strict=True)]
        for pair in zip(x, keep, strict=True)
    ]
    return [[dot(softmax(row), column) for column in zip(*masked, strict=True)] for row in masked]


def activate(kind, value):
    if kind == "swiglu":
        return value / (1.0 + math.exp(-value))
    if kind in ("gelu", "geglu"):
        return 0.5 * value * (1.0 + math.erf(value / math.sqrt(2.0)))
    return max(value, 0.0) ** (2 if kind == "relu2" else 1)


def wave(position, i, width):
    angle = position / 10000 ** ((i - i % 2) / width)
    return math.cos(angle) if i % 2 else math.sin(angle)


def softmax(row):
    powers = [math.exp(value - max(row)) for value in row]
    return [power / sum(powers) for power in powers]


def dot(first, second):
    return sum(a * b for a, b in zip(first, second, strict=True))


def plus(first, second):
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(first, second, strict=True)]
