"""The same encoder-decoder in torch: by hand as in the notebooks, and with torch.nn.Transformer."""

from __future__ import annotations

import math

import torch
from sizes import DROPOUT, MAX_POSITIONS, PAD, Size
from torch import Tensor, nn
from torch.nn import functional
from weights import Names, Weights, copy_weights, joined, sinusoids


class Embedded(nn.Module):
    """Embeddings times sqrt(d_model) plus sinusoids."""

    def __init__(self, words: int, width: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.register_buffer("waves", sinusoids(MAX_POSITIONS, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(x + self.waves[: ids.shape[1]])


# -- as in the notebooks -------------------------------------------------------------------------


class NotebookAttention(nn.Module):
    """Attention by scores, masking with -1e9, softmax and a product."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.width = size.heads, size.d_model // size.heads
        self.q, self.k, self.v, self.o = (nn.Linear(size.d_model, size.d_model) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            projection(inputs).view(inputs.shape[0], -1, self.heads, self.width).transpose(1, 2)
            for projection, inputs in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = (q @ k.transpose(-2, -1) / math.sqrt(self.width)).masked_fill(~mask, -1e9)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class NotebookLayer(nn.Module):
    def __init__(self, size: Size, decodes: bool, dropout: float) -> None:
        super().__init__()
        self.attention, self.attention_norm = NotebookAttention(size), nn.LayerNorm(size.d_model)
        if decodes:
            self.cross, self.cross_norm = NotebookAttention(size), nn.LayerNorm(size.d_model)
        self.inner = nn.Linear(size.d_model, size.d_ff)
        self.outer = nn.Linear(size.d_ff, size.d_model)
        self.feed_forward_norm = nn.LayerNorm(size.d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        memory: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, x, mask)))
        if memory is not None:
            x = self.cross_norm(x + self.dropout(self.cross(x, memory, source_mask)))
        hidden = self.outer(functional.relu(self.inner(x)))
        return self.feed_forward_norm(x + self.dropout(hidden))


class Notebook(nn.Module):
    """An encoder-decoder that returns the logits of every position."""

    names = Names("source.table", "target.table", "words", "encoder.{}", "decoder.{}", {})

    def __init__(self, size: Size, words: tuple[int, int], dropout: float = DROPOUT) -> None:
        super().__init__()
        self.source, self.target = (
            Embedded(vocab_size, size.d_model, dropout) for vocab_size in words
        )
        self.encoder, self.decoder = (
            nn.ModuleList(NotebookLayer(size, decodes, dropout) for _ in range(size.layers))
            for decodes in (False, True)
        )
        self.words = nn.Linear(size.d_model, words[1])

    def load(self, weights: Weights) -> None:
        copy_weights(self, weights, self.names.peer_name)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask = (source != PAD)[:, None, None, :]
        time = target.shape[1]
        future = torch.ones(time, time, device=target.device).tril().bool()
        mask = (target != PAD)[:, None, None, :] & future
        memory, x = self.source(source), self.target(target)
        for layer in self.encoder:
            memory = layer(memory, source_mask)
        for layer in self.decoder:
            x = layer(x, mask, memory, source_mask)
        return self.words(x)


# -- torch.nn.Transformer ------------------------------------------------------------------------


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings and a projection; returns the mean loss.

    The paper has no norm after the last layer, and no dropout on attention weights and in the
    feed-forward. torch has no options for them, so that they are removed after construction.
    """

    names = Names(
        "source.table",
        "target.table",
        "words",
        "body.encoder.layers.{}",
        "body.decoder.layers.{}",
        {
            "attention.in": "self_attn.in_proj_",
            "attention.o": "self_attn.out_proj",
            "cross.in": "multihead_attn.in_proj_",
            "cross.o": "multihead_attn.out_proj",
            "inner": "linear1",
            "outer": "linear2",
            "attention_norm": "norm1",
            "cross_norm": "norm2",
            "encoder.feed_forward_norm": "norm2",
            "decoder.feed_forward_norm": "norm3",
        },
    )

    def __init__(self, size: Size, words: tuple[int, int], dropout: float = DROPOUT) -> None:
        super().__init__()
        self.source, self.target = (
            Embedded(vocab_size, size.d_model, dropout) for vocab_size in words
        )
        self.body = nn.Transformer(
            size.d_model, size.heads, size.layers, size.layers, size.d_ff, dropout, batch_first=True
        )
        self.body.encoder.norm = self.body.decoder.norm = None
        for part in self.body.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
            elif isinstance(part, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                part.dropout.p = 0.0
        self.words = nn.Linear(size.d_model, words[1])

    def load(self, weights: Weights) -> None:
        copy_weights(self, joined(weights), self.names.peer_name)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        inputs, labels = target[:, :-1], target[:, 1:]
        pads = source == PAD
        future = nn.Transformer.generate_square_subsequent_mask(
            inputs.shape[1], device=inputs.device, dtype=torch.bool
        )
        hidden = self.body(
            self.source(source),
            self.target(inputs),
            tgt_mask=future,
            tgt_is_causal=True,
            src_key_padding_mask=pads,
            memory_key_padding_mask=pads,
        )
        return mean_loss(self.words(hidden), labels)


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss per target token, at least in single precision."""
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)
