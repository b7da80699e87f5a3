"""Differences between the members of a stack, besides their seeds.

Members may differ in numbers of the training loop and of dropout, in initialisation, in masks and
mask values, and in encodings that act by tables of equal shape: added to embeddings or scores, or
rotating queries and keys. Different entries are called in turn, each for its own members, and
their results are joined in the order of the members. Everything else (data, sizes, attention,
batches, steps, evaluation) is the same for all members: the shape of a stack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headtohead.errors import HeadToHeadError
from headtohead.plugins.component import require_shape
from headtohead.plugins.entry import Options
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import calling, find_positional
from headtohead.schema.run_config import MEMBER_FIELDS, EntryConfig, RunConfig

COMMON_MECHANISMS = frozenset({"draw", "content_bias", "score", "values"})
"""Mechanisms that oblige all members of a stack to have the same encoding."""


def shape_key(config: RunConfig) -> str:
    """Return the part of a configuration that all members of a stack share, as JSON: runs with equal keys can stack.

    It keeps encodings that vary by layer, act by batch row or use one of the `COMMON_MECHANISMS`; maskings that vary by
    layer; the maximum length of each role's encoding; and all other fields except `MEMBER_FIELDS`.

    Raises:
        HeadToHeadError: If an encoding is not registered, or ``limit`` or ``mechanisms_of`` of a plugin fails.
    """
    content: dict[str, Any] = config.model_dump(mode="json")
    for section, fields in MEMBER_FIELDS.items():
        for name in fields:
            content[section].pop(name, None)
    alternating_masks = {}
    for role, masking in content["masking"].items():
        if "next_layers" in masking:
            alternating_masks[role] = masking
    content["masking"] = alternating_masks
    content["positional"] = {}
    content["limits"] = []  # translations of all members have the same limit
    for role in config.roles:
        chosen = config.entry("positional", role)
        encoding = find_positional(chosen.name)
        # Encodings with sampled positions or batch rows receive other positions than other members. Encodings that act
        # on queries or weights need the explicit path and would slow down other members, as tables per sentence would.
        with calling(encoding):
            common = encoding.mechanisms_of(chosen.options) & COMMON_MECHANISMS
            limit = encoding.limit(chosen.options)
        if chosen.next_layers or encoding.by_row or common:
            content["positional"][role] = chosen.model_dump(mode="json")
        content["limits"].append(limit)
    return json.dumps(content, sort_keys=True)


class PerMember:
    """A number per member. A number that is equal for all members is a plain float instead."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = tuple(values)
        self._tensors: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def vector_for(self, x: Tensor) -> Tensor:
        """Return ``[member]`` with the dtype and device of ``x``; the same tensor object for equal ones."""
        key = (x.dtype, x.device)
        if key not in self._tensors:
            self._tensors[key] = torch.tensor(self.values, dtype=x.dtype, device=x.device)
        return self._tensors[key]

    def broadcast_to(self, x: Tensor) -> Tensor:
        """Return ``[member, 1, ...]`` with the dtype, device and number of axes of ``x``."""
        return self.vector_for(x).view(-1, *[1] * (x.dim() - 1))


class PerMemberMaskValue:
    """Mask values that differ between members."""

    def __init__(self, names: Sequence[str]) -> None:
        self.low = PerMember([-torch.inf if name == "-inf" else -1e9 for name in names])
        self.added = PerMember([float(name == "additive") for name in names])
        self.replaced = PerMember([float(name == "-1e9") for name in names])


MaskValue = str | PerMemberMaskValue
"""``"-inf"``, ``"-1e9"`` or ``"additive"`` for all members, or a value per member."""


def same_or_each(values: Sequence[float]) -> float | PerMember:
    """Return the number of all members, or a number per member where they differ."""
    if len(set(values)) == 1:
        return values[0]
    return PerMember(values)


def groups(
    configs: Sequence[RunConfig], family: str, role: str
) -> list[tuple[EntryConfig, tuple[int, ...]]]:
    """Return the different entries of a family in a role, each with the indices of its members.

    Entries are in the order of their first members, and the indices ascend. Entries with equal names, options and
    entries of the next layers are one.

    Args:
        configs: The configuration of each member.
        family: ``"positional"``, ``"masking"`` or ``"attention"``, a section of a configuration.
        role: A role of it.
    """
    entries: list[EntryConfig] = []
    members_of: list[list[int]] = []
    for member, config in enumerate(configs):
        chosen = config.entry(family, role)
        if chosen not in entries:
            entries.append(chosen)
            members_of.append([])
        members_of[entries.index(chosen)].append(member)
    return [(entry, tuple(members)) for entry, members in zip(entries, members_of, strict=True)]


@lru_cache(maxsize=1024)
def index_tensor(indices: tuple[int, ...], device: torch.device) -> Tensor:
    """Return indices as a tensor, cached so that they are copied to a device once."""
    return torch.tensor(indices, device=device)


class MemberIndex:
    """Indices of the members of several groups in the stack."""

    def __init__(self, members: Sequence[tuple[int, ...]]) -> None:
        self.members = tuple(members)
        order = [member for group in members for member in group]
        self.inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
        self.in_order = self.inverse == tuple(range(len(order)))

    def take(self, x: Tensor, group: int) -> Tensor:
        """Return the members of a group from ``x [member, ...]``; an axis of 1 is shared by all."""
        if len(x) == 1:
            return x
        members = self.members[group]
        if members == tuple(range(members[0], members[-1] + 1)):
            return x[members[0] : members[-1] + 1]
        return x.index_select(0, index_tensor(members, x.device))

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate the groups' tensors ``[member of the group, ...]`` in the order of the stack."""
        joined = torch.cat(list(parts))
        if self.in_order:
            return joined
        return joined.index_select(0, index_tensor(self.inverse, joined.device))

    def broadcast(self, parts: Sequence[Tensor], shape: Sequence[int] | None = None) -> Tensor:
        """Join tensors as ``join`` does, expanding axes of length 1 to ``shape`` or to the longest of the tensors."""
        if shape is None:
            shapes = [part.shape[1:] for part in parts]
            shape = [max(sizes) for sizes in zip(*shapes, strict=True)]
        expanded = []
        for part, members in zip(parts, self.members, strict=True):
            expanded.append(part.expand(len(members), *shape))
        return self.join(expanded)


class PerMemberPositional(Positional):
    """Encodings of a role that differ between members; each is called for its own members.

    An encoding without a mechanism contributes the neutral element: zeros, or no rotation. ``shape_key`` stacks no
    different encodings with the hooks ``content_bias``, ``score`` or ``values``.
    """

    def __init__(self, parts: Sequence[Positional], members: Sequence[tuple[int, ...]]) -> None:
        super().__init__(Options(), parts[0].context)
        self.entries = torch.nn.ModuleList(parts)
        self.index_of = MemberIndex(members)
        self._mechanisms = frozenset[str]().union(*(part.mechanisms for part in parts))
        # A buffer follows the dtype and the device of the model.
        self.register_buffer("zero", torch.zeros(()), persistent=False)

    @property
    def mechanisms(self) -> frozenset[str]:
        """Names of the hooks by which any of the encodings acts."""
        return self._mechanisms

    @property
    def parts(self) -> Sequence[Positional]:
        """The encodings, in the order of groups."""
        return list(self.entries)  # type: ignore[arg-type]

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        return self._tables("embed", positions, role, neutral=(1, 1, self.context.d_model))

    def bias(
        self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        return self._tables(
            "bias", query_positions, key_positions, role, layer, neutral=(1, 1, 1, 1)
        )

    def rotate(self, x: Tensor, positions: Tensor, role: str, layer: int) -> Tensor:
        rotated = []
        for number, part in enumerate(self.parts):
            vectors = self.index_of.take(x, number)
            rotated.append(part.rotate(vectors, positions, role, layer))
        return self.index_of.join(rotated)

    def _tables(self, hook: str, *arguments: Any, neutral: tuple[int, ...]) -> Tensor | None:
        """Return the joined tables of a hook; tables that depend on no parameter are cached."""
        if hook not in self.mechanisms:
            return None
        zero = self.get_buffer("zero")
        has_parameters = next(self.parameters(), None) is not None
        if has_parameters:
            return self._table(hook, neutral, zero, *arguments)
        return self.cached(self._table, hook, neutral, zero, *arguments)

    def _table(self, hook: str, neutral: tuple[int, ...], zero: Tensor, *arguments: Any) -> Tensor:
        tables = []
        for part in self.parts:
            table = getattr(part, hook)(*arguments)
            if table is None:
                table = zero.expand(1, *neutral)
            tables.append(table.to(zero.dtype))
        return self.index_of.broadcast(tables)


def member_and_batch_sizes(
    members: int, batch: int, *, is_sampled: bool
) -> dict[str, tuple[int, ...]]:
    """Return the permitted sizes of the axes ``member`` and ``batch`` of a result of ``embed`` or ``bias``.

    With sampled positions, the sentences of all members are on the axis ``batch``.
    """
    if is_sampled:
        return {"member": (1,), "batch": (1, members * batch)}
    return {"member": (1, members), "batch": (1, batch)}


def require_mask(
    masking: Masking,
    mask: object,
    rows: tuple[int, ...],
    query_positions: Tensor,
    key_positions: Tensor,
) -> None:
    """Raise unless ``Masking.mask`` returned a mask of the right shape; the caller handles None.

    Args:
        masking: The masking that returned it.
        mask: The returned value, ``[batch, query, key]``.
        rows: The permitted sizes of the axis ``batch``.
        query_positions: The queries that it was called with, ``[query]``.
        key_positions: The keys that it was called with, ``[key]``.

    Raises:
        HeadToHeadError: If it is no boolean tensor of the right shape.
    """
    require_shape(
        masking, "mask", mask, batch=rows, query=len(query_positions), key=len(key_positions)
    )
    if isinstance(mask, Tensor) and mask.dtype != torch.bool:
        raise HeadToHeadError(
            f"{type(masking).__name__}.mask returned a tensor of {mask.dtype}; return torch.bool, True where a query "
            "attends to a key"
        )


class PerLayerPositional(Positional):
    """Encodings of a role that alternate over the layers; none of them acts on embeddings."""

    def __init__(self, parts: Sequence[Positional]) -> None:
        super().__init__(Options(), parts[0].context)
        self.entries = torch.nn.ModuleList(dict.fromkeys(parts))
        self.order = [list(self.entries).index(part) for part in parts]

    def of_layer(self, layer: int) -> Positional:
        """Return the encoding of a layer."""
        return self.entries[self.order[layer % len(self.order)]]  # type: ignore[return-value]


class PerLayerMasking(Masking):
    """Maskings of a role that alternate over the layers."""

    def __init__(self, parts: Sequence[Masking]) -> None:
        super().__init__(Options())
        self.parts = parts

    def role_properties(self, role: str) -> frozenset[str]:
        """Return the properties that the maskings of all layers declare."""
        declared = [part.role_properties(role) or frozenset() for part in self.parts]
        return frozenset.intersection(*declared)


class PerMemberMasking(Masking):
    """Maskings of a role that differ between members."""

    def __init__(self, parts: Sequence[Masking], members: Sequence[tuple[int, ...]]) -> None:
        super().__init__(Options())
        self.parts = parts
        self.index_of = MemberIndex(members)
        self.members = sum(map(len, members))

    def role_properties(self, role: str) -> frozenset[str]:
        """Return the properties that the maskings of all members declare."""
        declared = [part.role_properties(role) or frozenset() for part in self.parts]
        common = frozenset.intersection(*declared)
        # A key that only some members hide is not shown by all of them.
        return common if len(set(declared)) == 1 else common - {"shows-the-rest"}

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor:
        """Return the masks of all members, ``[member · sentence, query, key]``; True where a query attends to a key.

        A masking that masks nothing contributes a mask of True, so the result is never None.

        Args:
            role: As in `Masking.mask`.
            query_positions: Integers ``[query]``.
            key_positions: Integers ``[key]``.
            lengths: Lengths of the sentences of all members, member after member, ``[member · sentence]``; or the
                single length of all sentences, ``[1]``, in a step of cached decoding. The result then has one
                sentence per member.

        Raises:
            HeadToHeadError: If a masking returns no boolean tensor of the right shape.
        """
        if len(lengths) == 1:
            rows = lengths.view(1, 1).expand(self.members, 1)
        else:
            rows = lengths.view(self.members, -1)
        # rows: [member, sentence]
        masks = []
        for number, part in enumerate(self.parts):
            group_lengths = self.index_of.take(rows, number)
            mask = part.mask(role, query_positions, key_positions, group_lengths.flatten())
            if mask is None:
                mask = torch.ones(1, 1, 1, dtype=torch.bool, device=lengths.device)
            else:
                sizes = (1, group_lengths.numel())
                require_mask(part, mask, sizes, query_positions, key_positions)
            # [member · sentence of the group or 1, query, key] to [member of the group or 1, sentence or 1, query, key]
            sentences = 1 if len(mask) == 1 else group_lengths.shape[1]
            masks.append(mask.view(-1, sentences, *mask.shape[1:]))
        shape = (rows.shape[1], len(query_positions), len(key_positions))
        return self.index_of.broadcast(masks, shape).flatten(0, 1)
