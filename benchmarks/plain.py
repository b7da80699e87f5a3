"""The same encoder-decoder in plain torch modules, the reference of a stack's speed.

An ordinary implementation for a single run: nn.Linear, nn.LayerNorm, one product for queries, keys
and values, scaled_dot_product_attention with boolean masks, nn.CrossEntropyLoss.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    name: str
    d_model: int
    heads: int
    layers: int
    d_ff: int
    source_words: int
    target_words: int
    rows: int
    source_time: int
    target_time: int


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.queries = nn.Linear(size.d_model, size.d_model)
        self.keys_values = nn.Linear(size.d_model, 2 * size.d_model)
        self.output = nn.Linear(size.d_model, size.d_model)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        return self.attend(self.queries(x), *self.keys_values(memory).chunk(2, dim=-1), mask)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            x.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for x in (queries, keys, values)
        )
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class SelfAttention(Attention):
    def __init__(self, size: Size) -> None:
        super().__init__(size)
        del self.queries, self.keys_values
        self.queries_keys_values = nn.Linear(size.d_model, 3 * size.d_model)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        return self.attend(*self.queries_keys_values(x).chunk(3, dim=-1), mask)


class Layer(nn.Module):
    def __init__(self, size: Size, cross: bool) -> None:
        super().__init__()
        d = size.d_model
        self.attention, self.cross = SelfAttention(size), Attention(size) if cross else None
        maps = OrderedDict(
            inner=nn.Linear(d, size.d_ff), relu=nn.ReLU(), outer=nn.Linear(size.d_ff, d)
        )
        self.feed_forward = nn.Sequential(maps)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.cross_norm = nn.LayerNorm(d) if cross else None

    def forward(self, x: Tensor, mask: Tensor, *memory: Tensor) -> Tensor:
        h = self.attention_norm(x)
        x = x + self.attention(h, h, mask)
        if self.cross is not None and self.cross_norm is not None:
            x = x + self.cross(self.cross_norm(x), *memory)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


class PlainTransformer(nn.Module):
    """Pre-norm, sinusoidal positions, separate vocabularies: the default variant of headtohead."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        d = size.d_model
        self.scale = d**0.5
        self.source_embedding = nn.Embedding(size.source_words, d)
        self.target_embedding = nn.Embedding(size.target_words, d)
        even = torch.arange(0, d, 2)
        angles = torch.arange(512)[:, None] * 10000.0 ** (-even / d)
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d]
        self.register_buffer("positions", table.float())
        self.encoder = nn.ModuleList(Layer(size, cross=False) for _ in range(size.layers))
        self.decoder = nn.ModuleList(Layer(size, cross=True) for _ in range(size.layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, size.target_words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask = (source != 0)[:, None, None, :]
        time = target.shape[1]
        causal = torch.ones(time, time, dtype=torch.bool, device=target.device).tril()
        mask = causal & (target != 0)[:, None, None, :]
        memory = self.source_embedding(source) * self.scale + self.positions[: source.shape[1]]
        for layer in self.encoder:
            memory = layer(memory, source_mask)
        memory = self.encoder_norm(memory)
        x = self.target_embedding(target) * self.scale + self.positions[:time]
        for layer in self.decoder:
            x = layer(x, mask, memory, source_mask)
        return self.lm_head(self.decoder_norm(x))  # type: ignore[no-any-return]


class PlainTraining:
    """An efficient plain training loop: fused AdamW, clipped gradients, a batch on the device."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(1)
        self.model = PlainTransformer(size).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=1e-3,
            betas=(0.9, 0.98),
            eps=1e-9,
            weight_decay=0.0,
            fused=True,
        )
        self.loss = nn.CrossEntropyLoss(ignore_index=0)

    def step(self, source: Tensor, target: Tensor) -> Tensor:
        logits = self.model(source, target[:, :-1])
        loss = self.loss(logits.flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()
