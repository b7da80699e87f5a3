"""Positions, masks and cached keys of a forward pass of attention."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch
from torch import Tensor

from headtohead.model.cuda import on_cuda
from headtohead.model.members import MaskValue, PerMemberMaskValue
from headtohead.plugins.attention import MaskPattern


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
    is_sampled: bool = False
    """Whether positions are sampled: ``[member · batch, time]``, a row per sentence."""
    declared: frozenset[str] = frozenset()
    """Properties that the masking scheme declares in this role."""
    ids: Tensor | None = None
    """Ids of the queries' tokens, ``[member, batch, query]``; None in cross-attention."""
    _derived: dict[Hashable, tuple[Tensor | None, Tensor]] = field(default_factory=dict)

    def additive(self, dtype: torch.dtype, mask_value: MaskValue) -> Tensor | None:
        """Return the mask as a term to add to scores: 0 where it is True, else the mask value; None without a mask.

        ``[member · batch or 1, 1, query, key]``, with members folded into the batch for the fused
        kernel. It is computed once per type: all layers of a context have the same mask value.

        Args:
            dtype: Type of the term.
            mask_value: ``"-inf"`` adds -inf; ``"-1e9"`` and ``"additive"`` add -1e9.
        """
        mask = self.mask
        if mask is None:
            return None

        def additive() -> Tensor:
            zero, lowest = _numbers(
                dtype, mask.device, -torch.inf if mask_value == "-inf" else -1e9
            )
            if isinstance(mask_value, PerMemberMaskValue):
                lowest = mask_value.low.broadcast_to(zero.view(1, 1, 1, 1, 1))
            return torch.where(mask, zero, lowest).flatten(0, 1)

        return self.derived(("additive", dtype), None, additive)

    def derived(
        self, key: Hashable, source: Tensor | None, compute: Callable[[], Tensor]
    ) -> Tensor:
        """Return a tensor that all layers of the role share; it is computed once for a source.

        Only the last result of a key is stored: another source object, even if equal, is computed again.

        Args:
            key: Identifies the computation.
            source: The tensor object from which it is computed, besides the mask; or None.
            compute: Computes it.
        """
        if key in self._derived:
            stored_source, stored = self._derived[key]
            if stored_source is source:
                return stored
        computed = compute()
        self._derived[key] = (source, computed)
        return computed

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
        return self.mask is not None and any_or_unknown(self.dead_rows)


def any_or_unknown(flags: Tensor) -> bool:
    """Return whether any flag is set, or True on a GPU, where the test would synchronise with the host."""
    return on_cuda(flags) or flags.is_meta or bool(flags.any())


@dataclass
class Cache:
    """Tensors of the tokens decoded so far, ``[member, batch, .., length, width]``, by name; none before the first.

    ``keys`` and ``values`` have an axis of heads. ``inputs`` are those of the layer, if a hook depends on earlier ones.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)

    def append(self, name: str, new: Tensor) -> Tensor:
        """Append a tensor of new tokens, and return that of all tokens."""
        earlier = self.tensors.get(name)
        self.tensors[name] = (
            new.contiguous() if earlier is None else torch.cat([earlier, new], dim=-2)
        )
        return self.tensors[name]

    def select(self, rows: Tensor) -> None:
        """Replace the batch rows by the given rows ``[member, row]``; a row may occur more than once."""
        members = torch.arange(len(rows), device=rows.device).unsqueeze(1)
        self.tensors = {name: x[members, rows] for name, x in self.tensors.items()}


@cache
def _numbers(dtype: torch.dtype, device: torch.device, low: float) -> tuple[Tensor, Tensor]:
    return torch.zeros((), dtype=dtype, device=device), torch.full(
        (), low, dtype=dtype, device=device
    )
