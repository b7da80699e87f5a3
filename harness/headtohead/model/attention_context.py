"""What one pass of an attention is given beside its tokens: places, masks and earlier keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch
from torch import Tensor

from headtohead.model.members import MaskValue, PerMemberMaskValue
from headtohead.plugins.attention import MaskPattern

LEAST_ROOM = 16
"""Tokens that a cache has room for from the start."""


@dataclass(frozen=True)
class AttentionContext:
    """Who sees whom in one pass: positions ``[1, time]`` of both sides, and what is kept.

    ``keep`` is ``[member, batch or 1, 1, query, key]`` or None where nothing is masked. What
    follows from it is computed once for all layers.
    """

    query_positions: Tensor
    key_positions: Tensor
    mask: Tensor | None
    sampled_positions: bool = False
    """Whether the positions were drawn: ``[member · batch, time]``, one row for each sentence."""
    has_data: bool = True
    """Whether what is kept is that of sentences; of a model of shapes it tells nothing."""
    _additive: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def additive(self, dtype: torch.dtype, fill: MaskValue) -> Tensor | None:
        """Return zeros where a key is kept and the fill elsewhere, to be added to the scores.

        ``[member · batch or 1, 1, query, key]``: members are folded into the batch, as the fused
        path has them.
        """
        if self.mask is None:
            return None
        if dtype not in self._additive:
            low = 0.0 if isinstance(fill, PerMemberMaskValue) else -torch.inf if fill == "-inf" else -1e9
            zero, lowest = _numbers(dtype, self.mask.device, low)
            if isinstance(fill, PerMemberMaskValue):
                lowest = fill.low.like(zero).view(-1, 1, 1, 1, 1)
            self._additive[dtype] = torch.where(self.mask, zero, lowest).flatten(0, 1)
        return self._additive[dtype]

    @cached_property
    def dead_rows(self) -> Tensor:
        """True for queries that keep no key, ``[member · batch or 1, 1, query, 1]``."""
        assert self.mask is not None
        return ~self.mask.flatten(0, 1).any(dim=-1, keepdim=True)

    @cached_property
    def pattern(self) -> MaskPattern | None:
        """What queries see of the keys; None of shapes without numbers, which do not tell."""
        mask = self.mask
        if mask is None or mask.shape[-2] == 1:
            return "same"
        if not self.has_data:
            return None
        live = mask.any(-2, keepdim=True)
        if bool((mask == live).all()):
            return "same"
        square = mask.shape[-2] == mask.shape[-1]
        return "prefix" if square and bool((mask == live.expand_as(mask).tril()).all()) else "other"

    @cached_property
    def has_dead_rows(self) -> bool:
        """Whether any query may keep no key; shapes without numbers do not tell."""
        if self.mask is None or not self.has_data:
            return False
        return may_be(self.dead_rows)


_ASSUMED = ContextVar("assumed", default=False)


def may_be(flags: Tensor) -> bool:
    """Tell whether any flag is set, or True where asking is not free.

    A GPU would make the host wait, and what is traced for other batches must not hang on this one.
    """
    return _ASSUMED.get() or flags.device.type != "cpu" or bool(flags.any())


@contextmanager
def all_assumed() -> Iterator[None]:
    """Let everything that may be be, whatever batch is seen inside."""
    token = _ASSUMED.set(True)
    try:
        yield
    finally:
        _ASSUMED.reset(token)


@cache
def _numbers(dtype: torch.dtype, device: torch.device, low: float) -> tuple[Tensor, Tensor]:
    return torch.zeros((), dtype=dtype, device=device), torch.full((), low, dtype=dtype, device=device)


@dataclass
class Cache:
    """Keys and values of the tokens decoded so far, ``[member, batch, head, length, width]``.

    There is room for some tokens, made as it is needed, up to ``most``.
    """

    keys: Tensor
    values: Tensor
    most: int
    filled: int = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new tokens and return all of them."""
        end = self.filled + keys.shape[3]
        room = self.keys.shape[3]
        if end > room:
            room = min(max(2 * room, LEAST_ROOM, end), self.most)
            self.keys, self.values = (self._moved(x, room) for x in (self.keys, self.values))
        self.keys[:, :, :, self.filled : end] = keys
        self.values[:, :, :, self.filled : end] = values
        self.filled = end
        return self.keys[:, :, :, :end], self.values[:, :, :, :end]

    def select(self, rows: Tensor) -> None:
        """Keep the given batch rows, ``[member, row]``, in their order; one may be kept twice."""
        own = torch.arange(len(rows), device=rows.device).unsqueeze(1)
        room = self.keys.shape[3]
        self.keys, self.values = (
            self._moved(x[:, :, :, : self.filled][own, rows], room) for x in (self.keys, self.values)
        )

    def _moved(self, x: Tensor, room: int) -> Tensor:
        if x.shape[3] == room:
            return x
        moved = x.new_empty(*x.shape[:3], room, x.shape[4])
        moved[:, :, :, : self.filled] = x[:, :, :, : self.filled]
        return moved
