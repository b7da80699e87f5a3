"""The same encoder-decoder in plain torch modules, the reference of a stack's speed.

An ordinary implementation for a single run: nn.Linear, nn.LayerNorm, one product for queries, keys
and values, scaled_dot_product_attention with boolean masks, nn.CrossEntropyLoss.
"""

from __future__ import annotations

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
        q = self.split(self.queries(x))
        k, v = map(self.split, self.keys_values(memory).chunk(2, dim=-1))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(out.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class SelfAttention(Attention):
    def __init__(self, size: Size) -> None:
        super().__init__(size)
        del self.queries, self.keys_values
        self.projection = nn.Linear(size.d_model, 3 * size.d_model)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q, k, v = map(self.split, self.projection(x).chunk(3, dim=-1))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(out.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, size: Size, cross: bool) -> None:
        super().__init__()
        self.own = SelfAttention(size)
        self.cross = Attention(size) if cross else None
        self.inner = nn.Linear(size.d_model, size.d_ff)
        self.outer = nn.Linear(size.d_ff, size.d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(size.d_model) for _ in range(3 if cross else 2))

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Tensor:
        h = self.norms[0](x)
        x = x + self.own(h, h, mask)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), memory, source_mask)
        return x + self.outer(functional.relu(self.inner(self.norms[-1](x))))


class PlainTransformer(nn.Module):
    """Pre-norm, sinusoidal positions, separate vocabularies: the default variant of headtohead."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        d = size.d_model
        self.scale = d**0.5
        self.source = nn.Embedding(size.source_words, d)
        self.target = nn.Embedding(size.target_words, d)
        even = torch.arange(0, d, 2)
        angles = torch.arange(512)[:, None] * 10000.0 ** (-even / d)
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d]
        self.register_buffer("positions", table.float())
        self.encoder = nn.ModuleList(Layer(size, cross=False) for _ in range(size.layers))
        self.decoder = nn.ModuleList(Layer(size, cross=True) for _ in range(size.layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.words = nn.Linear(d, size.target_words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask = (source != 0)[:, None, None, :]
        time = target.shape[1]
        causal = torch.ones(time, time, dtype=torch.bool, device=target.device).tril()
        mask = causal & (target != 0)[:, None, None, :]
        memory = self.source(source) * self.scale + self.positions[: source.shape[1]]
        for layer in self.encoder:
            memory = layer(memory, source_mask)
        memory = self.encoder_norm(memory)
        x = self.target(target) * self.scale + self.positions[:time]
        for layer in self.decoder:
            x = layer(x, mask, memory, source_mask)
        return self.words(self.decoder_norm(x))


class PlainTraining:
    """An efficient plain training loop: fused AdamW, clipped gradients, a batch on the device."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(1)
        self.model = PlainTransformer(size).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True
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
