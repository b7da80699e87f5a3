"""Both architectures against loops over Python floats that share no code with it."""

import math

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config

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
    "second attention of the decoder": {"decoder_layers": 2, "quirks": {"cross_attention_memory": "decoder"}},
    "second attention of the decoder, post-norm": {"norm": "post", "quirks": {"cross_attention_memory": "decoder"}},
    "one table": {"tie_embeddings": "embeddings"},
    "more rows than words": {"quirks": {"min_vocab_size": 15}},
    "one table of more rows than words": {"tie_embeddings": "embeddings", "quirks": {"min_vocab_size": 15}},
    "shared norm": {"decoder_layers": 2, "quirks": {"shared_modules": ["norm"]}},
    "shared feed-forward": {"norm": "post", "final_norm": True, "quirks": {"shared_modules": ["feed-forward"]}},
    "feed-forward after each attention": {"quirks": {"decoder_feed_forward": "after-each"}},
    "all places shared": {
        "norm": "post",
        "quirks": {"decoder_feed_forward": "after-each", "shared_modules": ["norm", "feed-forward"]},
    },
    "positions by row": {"positional": {"name": "sinusoidal-by-row"}},
    "decoder only": {"architecture": "decoder-only", "decoder_layers": 2},
    "decoder only, post-norm and tied": {"architecture": "decoder-only", "norm": "post", "tie_embeddings": "output"},
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


@pytest.mark.parametrize("model", CHOICES.values(), ids=CHOICES.keys())
@pytest.mark.parametrize("masking", ["padding-causal", "none"])
def test_logits_equal_a_forward_pass_in_plain_loops(model, masking):
    small = {"d_model": 6, "heads": 2, "d_ff": 5, "encoder_layers": 1, "decoder_layers": 1}
    subject = Subject(tiny_config(masking=masking, **(small | model)))
    sentences, logits = subject.sentences, subject.reference_logits
    for member, row in ((0, 1), (1, 0)):
        weights = {name: value[member].tolist() for name, value in subject.model.state_dict().items()}
        oracle = Oracle(subject.config, weights, masking == "padding-causal", row)
        expected = oracle.logits(
            sentences.source[member, row].tolist(),
            int(sentences.source_lengths[member, row]),
            sentences.target[member, row].tolist(),
            int(sentences.target_lengths[member, row]),
        )
        live = int(sentences.target_lengths[member, row])
        torch.testing.assert_close(
            logits[member, row, :live], torch.tensor(expected[:live], dtype=torch.float64), rtol=0, atol=1e-10
        )
        assert len(expected[0]) == logits.shape[-1]


class Oracle:
    """The forward pass of a member for a sentence pair, in lists of floats."""

    def __init__(self, config, weights, masked, row):
        self.config, self.model = config, config.model
        self.weights, self.masked, self.row = weights, masked, row

    def logits(self, source, source_length, target, target_length):
        if self.model.architecture == "decoder-only":
            padding = [target[-1]] * (len(source) - source_length)
            return self.logits_without_encoder(source[:source_length] + target + padding)[source_length:]
        memory = self.encode(source, source_length)
        x = self.embed(target, "target_embedding", "decoder")
        on_embeddings = self.config.attention.decoder.name == "embedding-softmax"
        own_attention = self.softmax_of_embeddings if on_embeddings else self.self_attention
        own = [
            [not self.masked or (j <= i and j < target_length) for j in range(len(target))] for i in range(len(target))
        ]
        without_source = self.config.quirks.cross_attention_memory == "decoder"
        read, read_length = (target, target_length) if without_source else (source, source_length)
        cross = [[not self.masked or j < read_length for j in range(len(read))] for _ in target]
        for layer in range(self.model.decoder_layers):
            at = f"decoder.{layer}"
            x = self.branch(x, f"{at}.attention_branch", own_attention, f"{at}.attention", own)
            if self.config.quirks.decoder_feed_forward == "after-each":
                x = self.branch(x, f"{at}.between_branch", self.feed_forward, f"{at}.between")
            if without_source:
                x = self.branch(x, f"{at}.cross_branch", self.self_attention, f"{at}.cross", cross)
            else:
                x = self.branch(x, f"{at}.cross_branch", self.cross, memory, f"{at}.cross", cross)
            x = self.branch(x, f"{at}.feed_forward_branch", self.feed_forward, f"{at}.feed_forward")
        return [self.lm_head(row) for row in self.final(x, "decoder_norm")]

    def logits_without_encoder(self, ids):
        x = self.embed(ids, "target_embedding", "decoder")
        mask = [[not self.masked or j <= i for j in range(len(ids))] for i in range(len(ids))]
        for layer in range(self.model.decoder_layers):
            at = f"decoder.{layer}"
            x = self.branch(x, f"{at}.attention_branch", self.self_attention, f"{at}.attention", mask)
            x = self.branch(x, f"{at}.feed_forward_branch", self.feed_forward, f"{at}.feed_forward")
        return [self.lm_head(row) for row in self.final(x, "decoder_norm")]

    def encode(self, source, length):
        one_table = self.model.tie_embeddings in ("all", "embeddings")
        table = "target_embedding" if one_table else "source_embedding"
        x = self.embed(source, table, "encoder")
        mask = [[not self.masked or j < length for j in range(len(source))] for _ in source]
        for layer in range(self.model.encoder_layers):
            at = f"encoder.{layer}"
            x = self.branch(x, f"{at}.attention_branch", self.self_attention, f"{at}.attention", mask)
            x = self.branch(x, f"{at}.feed_forward_branch", self.feed_forward, f"{at}.feed_forward")
        return self.final(x, "encoder_norm")

    def embed(self, ids, table, role):
        self.ids = ids
        by_row = self.config.positional.role(role).name == "sinusoidal-by-row"
        width = self.model.d_model
        scale = math.sqrt(width) if self.model.embedding_scale == "sqrt-d_model" else 1.0
        rows = []
        for position in range(len(ids)):
            row = []
            for i in range(width):
                angle = (self.row if by_row else position) / 10000 ** ((i - i % 2) / width)
                wave = math.sin(angle) if i % 2 == 0 else math.cos(angle)
                row.append(self.smeared(ids, position, i, table, role) * scale + wave)
            rows.append(row)
        return rows

    def smeared(self, ids, position, i, table, role):
        rows = self.weights[f"{table}.weight"]
        own, style = rows[ids[position]], f"{role}.0.attention.style"
        if position == 0 or f"{style}.gate" not in self.weights:
            return own[i]
        scale = math.sqrt(len(own)) if self.model.embedding_scale == "sqrt-d_model" else 1.0
        score = sum(gate * value * scale for (gate,), value in zip(self.weights[f"{style}.gate"], own, strict=False))
        share = self.weights[f"{style}.share"][0] / (1 + math.exp(-score))
        return own[i] + share * rows[ids[position - 1]][i]

    def branch(self, x, name, inner, *settings):
        if self.model.norm != "post":
            added = inner([self.norm(row, f"{name}.norm") for row in x], *settings)
            if self.model.norm == "sandwich":
                added = [self.norm(row, f"{name}.post_norm") for row in added]
            return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(x, added, strict=True)]
        added = inner(x, *settings)
        return [
            self.norm([a + b for a, b in zip(*rows, strict=True)], f"{name}.norm")
            for rows in zip(x, added, strict=True)
        ]

    def norm(self, row, name):
        name = "shared.norm" if "norm" in self.config.quirks.shared_modules else name
        gain = self.weights[f"{name}.weight"][0]
        bias = self.weights.get(f"{name}.bias", [[0.0] * len(gain)])[0]
        mean = 0.0 if self.config.norm.decoder.name == "rmsnorm" else sum(row) / len(row)
        variance = sum((value - mean) ** 2 for value in row) / len(row)
        scale = math.sqrt(variance + self.model.norm_eps)
        return [(value - mean) / scale * g + b for value, g, b in zip(row, gain, bias, strict=True)]

    def final(self, x, name):
        used = self.model.norm == "pre" if self.model.final_norm is None else self.model.final_norm
        return [self.norm(row, name) for row in x] if used else x

    def linear(self, row, name, first=0, last=None):
        weight = self.weights[f"{name}.weight"]
        last = len(weight[0]) if last is None else last
        bias = self.weights[f"{name}.bias"][0] if self.model.bias else [0.0] * last
        return [sum(value * weight[i][o] for i, value in enumerate(row)) + bias[o] for o in range(first, last)]

    def self_attention(self, x, name, mask):
        d = self.model.d_model
        joint = f"{name}.queries_keys_values"
        q, k, v = ([self.linear(row, joint, s * d, (s + 1) * d) for row in x] for s in range(3))
        if f"{name}.style.table" in self.weights:
            table, (a, b) = self.weights[f"{name}.style.table"], self.weights[f"{name}.style.shares"]
            v = [
                [a * x + b * y for x, y in zip(row, table[id_], strict=True)]
                for row, id_ in zip(v, self.ids, strict=True)
            ]
        return self.attend(q, k, v, name, mask)

    def cross(self, x, memory, name, mask):
        d = self.model.d_model
        q = [self.linear(row, f"{name}.queries") for row in x]
        k = [self.linear(row, f"{name}.keys_values", 0, d) for row in memory]
        v = [self.linear(row, f"{name}.keys_values", d, 2 * d) for row in memory]
        return self.attend(q, k, v, name, mask)

    def attend(self, q, k, v, name, mask):
        heads, width = self.model.heads, self.model.d_model // self.model.heads
        out = []
        for i, query in enumerate(q):
            joined = []
            for head in range(heads):
                part = range(head * width, (head + 1) * width)
                seen = [j for j in range(len(k)) if mask[i][j]]
                scores = [sum(query[c] * k[j][c] for c in part) / math.sqrt(width) for j in seen]
                powers = [math.exp(score - max(scores)) for score in scores]
                total = sum(powers)
                for c in part:
                    joined.append(sum(p / total * v[j][c] for p, j in zip(powers, seen, strict=True)))
            out.append(self.linear(joined, f"{name}.output"))
        return out

    def softmax_of_embeddings(self, x, name, mask):
        masked = [
            [value if kept else value - 1e9 for value, kept in zip(*pair, strict=True)]
            for pair in zip(x, mask, strict=True)
        ]
        out = []
        for row in masked:
            powers = [math.exp(value - max(row)) for value in row]
            weights = [power / sum(powers) for power in powers]
            out.append(
                [sum(weight * other[c] for weight, other in zip(weights, masked, strict=True)) for c in range(len(row))]
            )
        return out

    def feed_forward(self, x, name):
        name = "shared.feed_forward" if "feed-forward" in self.config.quirks.shared_modules else name
        kind = self.config.feed_forward.role("encoder" if name.startswith("encoder") else "decoder").name
        inner = [self.linear(row, f"{name}.inner") for row in x]
        if kind in ("swiglu", "geglu"):
            half = self.model.d_ff
            inner = [[self.activate(kind, h) * g for h, g in zip(row[:half], row[half:], strict=True)] for row in inner]
        else:
            inner = [[self.activate(kind, h) for h in row] for row in inner]
        return [self.linear(row, f"{name}.outer") for row in inner]

    def activate(self, kind, value):
        if kind == "swiglu":
            return value / (1.0 + math.exp(-value))
        if kind in ("gelu", "geglu"):
            return 0.5 * value * (1.0 + math.erf(value / math.sqrt(2.0)))
        return max(value, 0.0) ** (2 if kind == "relu2" else 1)

    def lm_head(self, row):
        if self.model.tie_embeddings in ("none", "embeddings"):
            return self.linear(row, "lm_head")
        table = self.weights["target_embedding.weight"]
        return [sum(a * b for a, b in zip(row, word, strict=True)) for word in table]
