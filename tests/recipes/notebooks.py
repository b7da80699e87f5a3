"""The models of four notebooks in plain torch, written independently from the text of the notebooks.

They have the state-dict names of the notebooks and share no code with headtohead: sentences and
heads are computed separately. There is no dropout, because they are used in evaluation mode only.
"""

import math
from functools import partial

import torch
from torch import nn


def table(length, width, log):
    """Return the sinusoidal table in single precision, whatever the precision of the weights."""
    rates = torch.exp(torch.arange(0, width, 2).float() * -(log / width))
    angles = torch.arange(length).float()[:, None] * rates
    rows = torch.zeros(length, width)
    rows[:, 0::2], rows[:, 1::2] = angles.sin(), angles.cos()
    return rows


def attend(q, k, v, mask, mask_value, width):
    """Return one head of one sentence, ``[query, width]``; scores become mask_value where mask is False."""
    scores = (q @ k.T) / math.sqrt(width)
    if mask is not None:
        scores = torch.where(mask, scores, torch.full_like(scores, mask_value))
    return torch.softmax(scores, dim=-1) @ v


def attention_mask(keys, queries=None):
    """Return the mask of one sentence: padding (id 0) is masked, and for a decoder also later keys."""
    not_padding = torch.tensor([key != 0 for key in keys.tolist()])
    if queries is None:
        return not_padding.expand(len(keys), -1)
    causal = torch.tensor([[j <= i for j in range(len(keys))] for i in range(queries)])
    return not_padding & causal


class SplitHeads(nn.Module):
    def __init__(self, width, heads, mask_value, names=("W_q", "W_k", "W_v", "W_o")):
        super().__init__()
        self.heads, self.mask_value, self.names = heads, mask_value, names
        for name in names:
            self.add_module(name, nn.Linear(width, width))

    def forward(self, x, memory, mask):
        q, k, v = (
            getattr(self, name)(input)
            for name, input in zip(self.names, (x, memory, memory), strict=False)
        )
        width = x.shape[-1] // self.heads
        parts = [slice(head * width, (head + 1) * width) for head in range(self.heads)]
        rows = [
            attend(q[:, part], k[:, part], v[:, part], mask, self.mask_value, width)
            for part in parts
        ]
        return getattr(self, self.names[3])(torch.cat(rows, dim=-1))


class IndependentHeads(nn.Module):
    def __init__(self, width, heads, mask_value):
        super().__init__()
        self.mask_value = mask_value
        for name in ("W_q", "W_k", "W_v"):
            self.add_module(name, nn.ModuleList(nn.Linear(width, width) for _ in range(heads)))
        self.W_o = nn.Linear(heads * width, width)

    def forward(self, x, memory, mask):
        rows = [
            attend(q(x), k(memory), v(memory), mask, self.mask_value, x.shape[-1])
            for q, k, v in zip(self.W_q, self.W_k, self.W_v, strict=True)
        ]
        return self.W_o(torch.cat(rows, dim=-1))


class FeedForward(nn.Module):
    def __init__(self, width, inner, names):
        super().__init__()
        self.names = names
        self.add_module(names[0], nn.Linear(width, inner))
        self.add_module(names[1], nn.Linear(inner, width))

    def forward(self, x):
        first, second = (getattr(self, name) for name in self.names)
        return second(first(x).clamp(min=0))


class Layer(nn.Module):
    """Attentions in order, then the feed-forward network; each with a residual connection and LayerNorm."""

    def __init__(self, width, attentions, feed_forward):
        super().__init__()
        self.order = [*attentions, feed_forward[0]]
        for name, module in (*attentions.items(), feed_forward):
            self.add_module(name, module)
        for number in range(1, len(self.order) + 1):
            self.add_module(f"norm{number}", nn.LayerNorm(width))

    def forward(self, x, inputs):
        """Return the output; ``inputs`` are memory (None for self-attention) and mask of each attention."""
        for number, name in enumerate(self.order):
            module = getattr(self, name)
            if number < len(inputs):
                memory, mask = inputs[number]
                change = module(x, x if memory is None else memory, mask)
            else:
                change = module(x)
            x = getattr(self, f"norm{number + 1}")(x + change)
        return x


class Stack(nn.ModuleList):
    """Layers with the same attentions; ``names`` are those of the feed-forward network and its two linear layers."""

    def __init__(self, layers, width, style, attentions, names, inner):
        super().__init__(
            Layer(
                width,
                {name: style() for name in attentions},
                (names[0], FeedForward(width, inner, names[1:])),
            )
            for _ in range(layers)
        )

    def forward(self, x, inputs):
        for layer in self:
            x = layer(x, inputs)
        return x


class NormedStack(nn.Module):
    def __init__(self, layers, width, *more):
        super().__init__()
        self.layers = Stack(layers, width, *more)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, inputs):
        return self.norm(self.layers(x, inputs))


class Buffer(nn.Module):
    def __init__(self, name, value):
        super().__init__()
        self.register_buffer(name, value)


class Notebook(nn.Module):
    """Embeddings and passes of notebooks 1 to 3."""

    scale = 1.0

    def __init__(self, words, width):
        super().__init__()
        self.encoder_embedding = nn.Embedding(words[0], width)
        self.decoder_embedding = nn.Embedding(words[1], width)

    def forward(self, source, target):
        pairs = zip(source, target, strict=True)
        return torch.stack([self.row(row, *pair) for row, pair in enumerate(pairs)])

    def row(self, row, source, target):
        encoder, decoder, output = self.parts()
        memory = self.encoder_embedding(source) * self.scale + self.positions(row, len(source))
        memory = encoder(memory, [(None, attention_mask(source))])
        x = self.decoder_embedding(target) * self.scale + self.positions(row, len(target))
        cross_mask = attention_mask(source)[:1].expand(len(target), -1)
        return output(
            decoder(x, [(None, attention_mask(target, len(target))), (memory, cross_mask)])
        )


class Scratch(Notebook):
    """Notebook 1, with split or independent heads; masked scores are -1e9."""

    def __init__(
        self, words=(40, 40), width=10, heads=1, layers=1, inner=40, length=5, style=SplitHeads
    ):
        super().__init__(words, width)
        self.positional_encoding = Buffer("pe", table(length, width, math.log(10000.0))[None])
        heads, names = partial(style, width, heads, -1e9), ("feed_forward", "fc1", "fc2")
        self.encoder_layers = Stack(layers, width, heads, ["self_attn"], names, inner)
        self.decoder_layers = Stack(layers, width, heads, ["self_attn", "cross_attn"], names, inner)
        self.fc = nn.Linear(width, words[1])

    def parts(self):
        return self.encoder_layers, self.decoder_layers, self.fc

    def positions(self, row, time):
        return self.positional_encoding.pe[0, :time]


class Architecture(Notebook):
    """Notebook 2, with sinusoidal or learned positions; masked scores are -inf."""

    def __init__(
        self, words=(105, 104), width=16, heads=8, layers=2, inner=24, length=120, learned=False
    ):
        super().__init__(words, width)
        self.positional_encoding = (
            nn.ParameterDict({"positional_embedding": torch.randn(length, width)})
            if learned
            else Buffer("pe", table(length, width, math.log(10000.0))[None])
        )
        heads, names = (
            partial(SplitHeads, width, heads, -math.inf),
            ("feed_forward", "linear1", "linear2"),
        )
        self.encoder_layers = Stack(layers, width, heads, ["self_attention"], names, inner)
        self.decoder_layers = Stack(
            layers, width, heads, ["self_attention", "cross_attention"], names, inner
        )
        self.final_layer = nn.Linear(width, words[1])
        self.learned = learned

    def parts(self):
        return self.encoder_layers, self.decoder_layers, self.final_layer

    def positions(self, row, time):
        encoding = self.positional_encoding
        rows = encoding["positional_embedding"] if self.learned else encoding.pe[0]
        return rows[:time]


class Tatoeba(Notebook):
    """Notebook 3: every token of row b gets P[b]; the state dict does not contain the table."""

    def __init__(self, words=(50, 60), width=16, heads=8, layers=2, inner=24):
        super().__init__(words, width)
        self.table, self.scale = [table(128, width, math.log(10000.0))], math.sqrt(width)
        heads, names = partial(SplitHeads, width, heads, -1e9), ["self_attn", "cross_attn"]
        self.encoder = NormedStack(
            layers, width, heads, names[:1], ("ffn", "linear1", "linear2"), inner
        )
        self.decoder = NormedStack(
            layers, width, heads, names, ("feed_forward", "linear1", "linear2"), inner
        )
        self.output_layer = nn.Linear(width, words[1])

    def parts(self):
        return self.encoder, self.decoder, self.output_layer

    def positions(self, row, time):
        return self.table[0][row]


class Slides(nn.Module):
    """Notebook 4 as its ``translate`` calls it: the first attention is causal, the second unmasked.

    ``causal=False`` is its ``forward`` without a mask argument, which masks nothing.
    """

    NAMES = ("query", "key", "value", "fc")

    def __init__(self, words=5, width=128, heads=8, layers=(2, 2), inner=512, causal=True):
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(words, width)
        self.table = [table(64, width, torch.tensor(10000.0).log())]
        heads, names = (
            partial(SplitHeads, width, heads, -math.inf, self.NAMES),
            ("feedforward", "fc1", "fc2"),
        )
        self.encoder_layers = Stack(layers[0], width, heads, ["multihead_attn"], names, inner)
        self.decoder_layers = Stack(
            layers[1], width, heads, ["multihead_attn1", "multihead_attn2"], names, inner
        )
        self.fc_out = nn.Linear(width, words)

    def forward(self, source, target):
        return torch.stack([self.row(target_ids) for target_ids in target])

    def row(self, target):
        """Return the logits of a target; the model does not use the source."""
        x = self.embedding(target) + self.table[0][: len(target)]
        causal = attention_mask(torch.ones_like(target), len(target)) if self.causal else None
        return self.fc_out(self.decoder_layers(x, [(None, causal), (None, None)]))


@torch.no_grad()
def greedy(model, source, sos, eos, max_length):
    """Return the ids between sos and eos, at most ``max_length``, with a full forward pass per token."""
    ids = [sos]
    for _ in range(max_length):
        logits = model(torch.tensor([source]), torch.tensor([ids]))
        best = int(logits[0, -1].argmax())
        if best == eos:
            break
        ids.append(best)
    return ids[1:]
