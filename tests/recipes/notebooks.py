"""The models of four notebooks in plain torch, written anew from what their texts say.

They have the notebooks' state-dict names and share no code with headtohead: sentences and heads are
taken one by one. Dropout is left out, since they stand for evaluation.
"""

import math

import torch
from torch import nn


def table(length, width, log):
    """Sinusoids in single precision, whatever the weights are in: as all four notebooks do."""
    rates = torch.exp(torch.arange(0, width, 2).float() * -(log / width))
    angles = torch.arange(length).float()[:, None] * rates
    rows = torch.zeros(length, width)
    rows[:, 0::2], rows[:, 1::2] = angles.sin(), angles.cos()
    return rows


def attend(q, k, v, keep, fill, width):
    """One sentence, one head: ``[query, width]``; where keep is False, a score becomes fill."""
    scores = (q @ k.T) / math.sqrt(width)
    if keep is not None:
        scores = torch.where(keep, scores, torch.full_like(scores, fill))
    return torch.softmax(scores, dim=-1) @ v


def sees(keys, queries=None):
    """Keep-mask of one sentence: keys whose id is not 0, and none later than its query."""
    live = torch.tensor([key != 0 for key in keys.tolist()])
    if queries is None:
        return live.expand(len(keys), -1)
    causal = torch.tensor([[j <= i for j in range(len(keys))] for i in range(queries)])
    return live & causal


class SplitHeads(nn.Module):
    def __init__(self, width, heads, fill, names=("W_q", "W_k", "W_v", "W_o")):
        super().__init__()
        self.heads, self.fill, self.names = heads, fill, names
        for name in names:
            self.add_module(name, nn.Linear(width, width))

    def forward(self, x, memory, keep):
        q, k, v = (getattr(self, name)(one) for name, one in zip(self.names, (x, memory, memory), strict=False))
        width = x.shape[-1] // self.heads
        parts = [slice(head * width, (head + 1) * width) for head in range(self.heads)]
        rows = [attend(q[:, part], k[:, part], v[:, part], keep, self.fill, width) for part in parts]
        return getattr(self, self.names[3])(torch.cat(rows, dim=-1))


class IndependentHeads(nn.Module):
    def __init__(self, width, heads, fill):
        super().__init__()
        self.fill = fill
        for name in ("W_q", "W_k", "W_v"):
            self.add_module(name, nn.ModuleList(nn.Linear(width, width) for _ in range(heads)))
        self.W_o = nn.Linear(heads * width, width)

    def forward(self, x, memory, keep):
        rows = [
            attend(q(x), k(memory), v(memory), keep, self.fill, x.shape[-1])
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
    """Attentions in order, then the feed-forward; each is added and normalised."""

    def __init__(self, width, attentions, feed_forward):
        super().__init__()
        self.order = [*attentions, feed_forward[0]]
        for name, module in (*attentions.items(), feed_forward):
            self.add_module(name, module)
        for number in range(1, len(self.order) + 1):
            self.add_module(f"norm{number}", nn.LayerNorm(width))

    def forward(self, x, reads):
        """``reads``: for each attention the memory, None for the layer itself, and the mask."""
        for number, name in enumerate(self.order):
            module = getattr(self, name)
            if number < len(reads):
                memory, keep = reads[number]
                change = module(x, x if memory is None else memory, keep)
            else:
                change = module(x)
            x = getattr(self, f"norm{number + 1}")(x + change)
        return x


class Buffer(nn.Module):
    def __init__(self, name, value):
        super().__init__()
        self.register_buffer(name, value)


class Scratch(nn.Module):
    """Notebook 1, with split or independent heads; masked scores are -1e9."""

    def __init__(self, words=(40, 40), width=10, heads=1, layers=1, inner=40, length=5, style=SplitHeads):
        super().__init__()
        self.encoder_embedding = nn.Embedding(words[0], width)
        self.decoder_embedding = nn.Embedding(words[1], width)
        self.positional_encoding = Buffer("pe", table(length, width, math.log(10000.0))[None])

        def layer(*attentions):
            return Layer(
                width,
                {name: style(width, heads, -1e9) for name in attentions},
                ("feed_forward", FeedForward(width, inner, ("fc1", "fc2"))),
            )

        self.encoder_layers = nn.ModuleList(layer("self_attn") for _ in range(layers))
        self.decoder_layers = nn.ModuleList(layer("self_attn", "cross_attn") for _ in range(layers))
        self.fc = nn.Linear(width, words[1])

    def places(self, time):
        return self.positional_encoding.pe[0, :time]

    def forward(self, source, target):
        return torch.stack([self.row(*pair) for pair in zip(source, target, strict=True)])

    def row(self, source, target):
        memory = self.encoder_embedding(source) + self.places(len(source))
        for layer in self.encoder_layers:
            memory = layer(memory, [(None, sees(source))])
        x = self.decoder_embedding(target) + self.places(len(target))
        across = sees(source)[:1].expand(len(target), -1)
        for layer in self.decoder_layers:
            x = layer(x, [(None, sees(target, len(target))), (memory, across)])
        return self.fc(x)


class Architecture(nn.Module):
    """Notebook 2, with sinusoidal or learned positions; masked scores are -inf."""

    def __init__(self, words=(105, 104), width=16, heads=8, layers=2, inner=24, length=120, learned=False):
        super().__init__()
        self.encoder_embedding = nn.Embedding(words[0], width)
        self.decoder_embedding = nn.Embedding(words[1], width)
        self.positional_encoding = (
            nn.ParameterDict({"positional_embedding": torch.randn(length, width)})
            if learned
            else Buffer("pe", table(length, width, math.log(10000.0))[None])
        )

        def layer(*attentions):
            return Layer(
                width,
                {name: SplitHeads(width, heads, -math.inf) for name in attentions},
                ("feed_forward", FeedForward(width, inner, ("linear1", "linear2"))),
            )

        self.encoder_layers = nn.ModuleList(layer("self_attention") for _ in range(layers))
        self.decoder_layers = nn.ModuleList(layer("self_attention", "cross_attention") for _ in range(layers))
        self.final_layer = nn.Linear(width, words[1])
        self.learned = learned

    def places(self, time):
        own = self.positional_encoding
        rows = own["positional_embedding"] if self.learned else own.pe[0]
        return rows[:time]

    def forward(self, source, target):
        return torch.stack([self.row(*pair) for pair in zip(source, target, strict=True)])

    def row(self, source, target):
        memory = self.encoder_embedding(source) + self.places(len(source))
        for layer in self.encoder_layers:
            memory = layer(memory, [(None, sees(source))])
        x = self.decoder_embedding(target) + self.places(len(target))
        across = sees(source)[:1].expand(len(target), -1)
        for layer in self.decoder_layers:
            x = layer(x, [(None, sees(target, len(target))), (memory, across)])
        return self.final_layer(x)


class Stack(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(width)


class Tatoeba(nn.Module):
    """Notebook 3: every token of row b gets P[b]; the table is no part of the state dict."""

    def __init__(self, words=(50, 60), width=16, heads=8, layers=2, inner=24):
        super().__init__()
        self.encoder_embedding = nn.Embedding(words[0], width)
        self.decoder_embedding = nn.Embedding(words[1], width)
        self.table = [table(128, width, math.log(10000.0))]

        def layer(forward, *attentions):
            return Layer(
                width,
                {name: SplitHeads(width, heads, -1e9) for name in attentions},
                (forward, FeedForward(width, inner, ("linear1", "linear2"))),
            )

        self.encoder = Stack(width, [layer("ffn", "self_attn") for _ in range(layers)])
        decoder = [layer("feed_forward", "self_attn", "cross_attn") for _ in range(layers)]
        self.decoder = Stack(width, decoder)
        self.output_layer = nn.Linear(width, words[1])

    def forward(self, source, target):
        pairs = zip(source, target, strict=True)
        return torch.stack([self.row(row, *pair) for row, pair in enumerate(pairs)])

    def row(self, row, source, target):
        scale, place = math.sqrt(self.encoder_embedding.embedding_dim), self.table[0][row]
        memory = self.encoder_embedding(source) * scale + place
        for layer in self.encoder.layers:
            memory = layer(memory, [(None, sees(source))])
        memory = self.encoder.norm(memory)
        x = self.decoder_embedding(target) * scale + place
        across = sees(source)[:1].expand(len(target), -1)
        for layer in self.decoder.layers:
            x = layer(x, [(None, sees(target, len(target))), (memory, across)])
        return self.output_layer(self.decoder.norm(x))


class Slides(nn.Module):
    """Notebook 4 as its translate calls it: causal first attention, second one unmasked.

    Its forward alone, called without a mask, masks nothing: ``causal=False``.
    """

    NAMES = ("query", "key", "value", "fc")

    def __init__(self, words=5, width=128, heads=8, layers=(2, 2), inner=512, causal=True):
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(words, width)
        self.table = [table(64, width, torch.tensor(10000.0).log())]

        def layer(*attentions):
            return Layer(
                width,
                {name: SplitHeads(width, heads, -math.inf, self.NAMES) for name in attentions},
                ("feedforward", FeedForward(width, inner, ("fc1", "fc2"))),
            )

        self.encoder_layers = nn.ModuleList(layer("multihead_attn") for _ in range(layers[0]))
        self.decoder_layers = nn.ModuleList(layer("multihead_attn1", "multihead_attn2") for _ in range(layers[1]))
        self.fc_out = nn.Linear(width, words)

    def forward(self, source, target):
        return torch.stack([self.row(target_ids) for target_ids in target])

    def row(self, target):
        """The source is read by nobody."""
        x = self.embedding(target) + self.table[0][: len(target)]
        causal = sees(torch.ones_like(target), len(target)) if self.causal else None
        for layer in self.decoder_layers:
            x = layer(x, [(None, causal), (None, None)])
        return self.fc_out(x)


@torch.no_grad()
def greedy(model, source, sos, eos, most):
    """Ids after sos, before eos, at most ``most``: one sentence alone, the whole pass each time."""
    written = [sos]
    for _ in range(most):
        logits = model(torch.tensor([source]), torch.tensor([written]))
        chosen = int(logits[0, -1].argmax())
        if chosen == eos:
            break
        written.append(chosen)
    return written[1:]
