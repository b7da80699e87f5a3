"""Positions, masks and cached keys of a forward pass of attention."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch
from torch import Tensor

from headtohead.model.cuda import on_cuda
from headtohead.model.members import MaskValue, PerMemberMaskValue
from headtohead.plugins.attention import MaskPattern

LEAST_ROOM = 16
"""Initial capacity of a cache, in tokens."""


@dataclass(frozen=True)
class AttentionContext:
    """Positions ``[1, time]`` of queries and keys, and the mask of a forward pass.

    ``mask`` is ``[member, batch or 1, 1, query, key]``, True where a query attends to a key, or
    None where nothing is masked. Layers share the context, so values derived from the mask are
    computed once.
    """

    query_positions: Tensor
    key_positions: Tensor
    mask: Tensor | None
    sampled_positions: bool = False
    """Whether positions are sampled: ``[member · batch, time]``, a row per sentence."""
    declared: frozenset[str] = frozenset()
    """Properties that the masking scheme declares in this role."""
    _derived: dict[Hashable, tuple[Tensor | None, Tensor]] = field(default_factory=dict)

    def additive(self, dtype: torch.dtype, mask_value: MaskValue) -> Tensor | None:
        """Return the mask as a term to add to scores: 0 where it is True, else the mask value.

        ``[member · batch or 1, 1, query, key]``, with members folded into the batch for the fused
        kernel.
        """
        mask = self.mask
        if mask is None:
            return None

        def additive() -> Tensor:
            zero, lowest = _numbers(dtype, mask.device, -torch.inf if mask_value == "-inf" else -1e9)
            if isinstance(mask_value, PerMemberMaskValue):
                lowest = mask_value.low.along(zero.view(1, 1, 1, 1, 1))
            return torch.where(mask, zero, lowest).flatten(0, 1)

        return self.derived(("additive", dtype), None, additive)

    def derived(self, key: Hashable, source: Tensor | None, compute: Callable[[], Tensor]) -> Tensor:
        """Return a tensor that all layers of the role share; it is computed once for a source.

        Args:
            key: Identifies the computation.
            source: The tensor object from which it is computed, besides the mask.
            compute: Computes it.
        """
        known = self._derived.get(key)
        if known is None or known[0] is not source:
            known = self._derived[key] = (source, compute())
        return known[1]

    @cached_property
    def dead_rows(self) -> Tensor:
        """True for queries that attend to no key, ``[member · batch or 1, 1, query, 1]``."""
        assert self.mask is not None
        return ~self.mask.flatten(0, 1).any(dim=-1, keepdim=True)

    @property
    def pattern(self) -> MaskPattern:
        """Structure of the mask as its scheme declares it, so that no step reads the mask from the device."""
        mask = self.mask
        if mask is None or mask.shape[-2] == 1:
            return "same"
        if "shows-the-rest" not in self.declared:
            return "other"
        if "hides-future" not in self.declared:
            return "same"
        return "prefix" if self.query_positions is self.key_positions else "other"

    @cached_property
    def has_dead_rows(self) -> bool:
        """Whether any query may attend to no key."""
        return self.mask is not None and may_be(self.dead_rows)


_ASSUMED = ContextVar("assumed", default=False)


def may_be(flags: Tensor) -> bool:
    """Return whether any flag is set, or True where testing it has a cost.

    On a GPU, the test would synchronise with the host.
    """
    return _ASSUMED.get() or on_cuda(flags) or flags.is_meta or bool(flags.any())


@contextmanager
def all_assumed() -> Iterator[None]:
    """Make ``may_be`` return True within the context, as on a GPU."""
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

    The capacity grows as needed, up to ``most`` tokens.
    """

    keys: Tensor
    values: Tensor
    most: int
    filled: int = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new tokens, and return those of all tokens."""
        end = self.filled + keys.shape[3]
        room = self.keys.shape[3]
        if end > room:
            room = min(max(2 * room, LEAST_ROOM, end), self.most)
            self.keys, self.values = (
                self._moved(x.to(new.dtype), room) for x, new in ((self.keys, keys), (self.values, values))
            )
        self.keys[:, :, :, self.filled : end] = keys
        self.values[:, :, :, self.filled : end] = values
        self.filled = end
        return self.keys[:, :, :, :end], self.values[:, :, :, :end]

    def select(self, rows: Tensor) -> None:
        """Replace the batch rows by the given rows ``[member, row]``; a row may occur more than once."""
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
