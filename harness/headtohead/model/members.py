"""What the members of a stack may differ in, beside their seeds.

Numbers of the loop and of dropout, how weights are drawn, and whatever reaches the model as a table
of equal shape: positions that are added to embeddings, to scores, or turn queries and keys; masks,
and what stands in their place. Entries that differ are asked one after the other, each for its own
members, and what they answer is put in the members' order. Everything else (data, sizes, attention,
batches, steps, evaluation) the members share: it is the shape of a stack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headtohead.plugins.entry import Options
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import EntryConfig, PerRole, RunConfig

OF_MEMBERS: Mapping[str, frozenset[str]] = {
    "train": frozenset({"lr", "weight_decay", "warmup_steps", "schedule", "clip_norm", "label_smoothing"}),
    "model": frozenset(
        {"dropout_embedding", "dropout_attention", "dropout_ffn", "dropout_residual", "init", "mask_value"}
    ),
}
"""Fields in which members of a stack may differ."""


def shape(config: RunConfig, registry: Registry) -> str:
    """Return what all members of a stack have in common, as text."""
    content: dict[str, Any] = config.model_dump(mode="json")
    for section, fields in OF_MEMBERS.items():
        for name in fields:
            del content[section][name]
    del content["masking"]
    content["positional"] = _positional(config.positional, registry)
    content["limits"] = _limits(config.positional, registry)
    return json.dumps(content, sort_keys=True)


def _positional(chosen: PerRole, registry: Registry) -> dict[str, Any]:
    """Return the encodings that only runs with the same one can be stacked with, by role.

    Those that draw positions or count rows are told other places than their neighbours; those that
    act on queries or on weights want the explicit path, which would slow their neighbours down.
    """
    found: dict[str, Any] = {}
    for role in ROLES:
        one = chosen.role(role)
        entry = registry.positional(one.name)
        options = entry.Options.model_validate(one.options)
        if entry.index(options) == "row" or entry.acts(options) & {"draw", "score", "values"}:
            found[role] = one.model_dump(mode="json")
    return found


def _limits(chosen: PerRole, registry: Registry) -> list[int | None]:
    """Return how many places each role knows: translations of all members end at the same."""
    found = []
    for role in ROLES:
        entry = registry.positional(chosen.role(role).name)
        found.append(entry.limit(entry.Options.model_validate(chosen.role(role).options)))
    return found


class PerMember:
    """Numbers that differ between members; equal ones are a plain number instead."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = tuple(values)
        self._known: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def like(self, x: Tensor) -> Tensor:
        """Return ``[member]`` in the type and on the device of ``x``."""
        key = (x.dtype, x.device)
        if key not in self._known:
            self._known[key] = torch.tensor(self.values, dtype=x.dtype, device=x.device)
        return self._known[key]

    def along(self, x: Tensor) -> Tensor:
        """Return the same, ``[member, 1, ...]`` with as many axes as ``x``."""
        return self.like(x).view(-1, *[1] * (x.dim() - 1))


class MixedFill:
    """What stands in the place of masked scores, where members differ in it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.low = PerMember([-torch.inf if one == "-inf" else -1e9 for one in names])
        self.added = PerMember([float(one == "additive") for one in names])
        self.replaced = PerMember([float(one == "-1e9") for one in names])


Fill = str | MixedFill
"""``"-inf"``, ``"-1e9"`` or ``"additive"``, of all members or of each."""


def fill_of(names: Sequence[str]) -> Fill:
    """Return the fill that all members have, or what each of them has."""
    return names[0] if len(set(names)) == 1 else MixedFill(names)


def same_or_each(values: Sequence[float]) -> float | PerMember:
    """Return the number that all members have, or what each of them has."""
    return values[0] if len(set(values)) == 1 else PerMember(values)


@dataclass(frozen=True)
class Group:
    """Members that share an entry, by their places in the stack."""

    chosen: EntryConfig
    members: tuple[int, ...]


def groups(configs: Sequence[RunConfig], family: str, role: str) -> list[Group]:
    """Return the entries that a family has in a role, each with its members, by first member."""
    found: dict[str, tuple[EntryConfig, list[int]]] = {}
    for member, config in enumerate(configs):
        chosen: EntryConfig = getattr(config, family).role(role)
        found.setdefault(chosen.model_dump_json(), (chosen, []))[1].append(member)
    return [Group(chosen, tuple(members)) for chosen, members in found.values()]


@lru_cache(maxsize=1024)
def as_index(places: tuple[int, ...], device: torch.device) -> Tensor:
    """Return places as an index, the same tensor every time: a device is told them once."""
    return torch.tensor(places, device=device)


class Places:
    """Where the members of several groups stand in the stack."""

    def __init__(self, members: Sequence[tuple[int, ...]]) -> None:
        self.members = tuple(members)
        order = [one for group in members for one in group]
        self.back = tuple(sorted(range(len(order)), key=order.__getitem__))
        self.in_order = self.back == tuple(range(len(order)))

    def of(self, member: int) -> tuple[int, int]:
        """Return the group of a member, and its place in there."""
        for number, group in enumerate(self.members):
            if member in group:
                return number, group.index(member)
        raise IndexError(member)

    def take(self, x: Tensor, group: int) -> Tensor:
        """Return the members of a group from ``x [member, ...]``; all share one where it is 1."""
        if len(x) == 1:
            return x
        members = self.members[group]
        if members == tuple(range(members[0], members[-1] + 1)):
            return x[members[0] : members[-1] + 1]
        return x.index_select(0, as_index(members, x.device))

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Put what the groups have, ``[member of the group, ...]``, in the order of the stack."""
        joined = torch.cat(list(parts))
        if self.in_order:
            return joined
        return joined.index_select(0, as_index(self.back, joined.device))

    def spread(self, parts: Sequence[Tensor]) -> Tensor:
        """As ``join``, of parts whose axes may be 1 where others are longer."""
        shape = [max(sizes) for sizes in zip(*(one.shape[1:] for one in parts), strict=True)]
        wide = [one.expand(len(members), *shape) for one, members in zip(parts, self.members, strict=True)]
        return self.join(wide)


class MixedPositional(Positional):
    """Encodings of one role that differ between members; each acts on its own members.

    One that does not act in a way is given the neutral element: nothing added, nothing turned.
    """

    def __init__(self, parts: Sequence[Positional], members: Sequence[tuple[int, ...]]) -> None:
        super().__init__(Options(), parts[0].context)
        self.entries = torch.nn.ModuleList(parts)
        self.places = Places(members)
        self._ways = frozenset[str]().union(*(one.ways for one in parts))
        # In the type of the model and on its device, which it learns by being moved along.
        self.register_buffer("zero", torch.zeros(()), persistent=False)

    @property
    def ways(self) -> frozenset[str]:
        """The ways in which any of the encodings acts."""
        return self._ways

    @property
    def parts(self) -> Sequence[Positional]:
        """The encodings, group by group."""
        return list(self.entries)  # type: ignore[arg-type]

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        """Return what is added to the embeddings of each member."""
        return self._tables("embed", positions, role, neutral=(1, 1, self.context.d_model))

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor | None:
        """Return what is added to the scores of each member."""
        places = (query_positions, key_positions)
        return self._tables("bias", *places, role, layer, neutral=(1, 1, 1, 1))

    def rotate(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        """Turn the queries or keys of each member."""
        return self.places.join(
            [part.rotate(self.places.take(x, number), positions, role) for number, part in enumerate(self.parts)]
        )

    def score(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor | None:
        """Return scores of each member's queries."""
        places = (query_positions, key_positions)
        return self._answers("score", q, *places, role, layer)

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return what is added to the values of each member."""
        places = (query_positions, key_positions)
        return self._answers("values", weights, *places, role, layer)

    def _tables(self, way: str, *arguments: Any, neutral: tuple[int, ...]) -> Tensor | None:
        """Ask for tables, which are kept where no weight has a part in them."""
        if way not in self.ways:
            return None
        if any(True for _ in self.parameters()):
            return self._table(way, neutral, self.get_buffer("zero"), *arguments)
        return self.cached(self._table, way, neutral, self.get_buffer("zero"), *arguments)

    def _table(self, way: str, neutral: tuple[int, ...], zero: Tensor, *arguments: Any) -> Tensor:
        found = [getattr(part, way)(*arguments) for part in self.parts]
        return self.places.spread([zero.expand(1, *neutral) if one is None else one.to(zero.dtype) for one in found])

    def _answers(self, way: str, x: Tensor, *arguments: Any) -> Tensor | None:
        if way not in self.ways:
            return None
        taken = [self.places.take(x, number) for number in range(len(self.parts))]
        found = [getattr(part, way)(one, *arguments) for part, one in zip(self.parts, taken, strict=True)]
        shape = next(one.shape[1:] for one in found if one is not None)
        return self.places.join(
            [
                one.new_zeros(len(one), *shape) if answer is None else answer
                for answer, one in zip(found, taken, strict=True)
            ]
        )


class MixedMasking(Masking):
    """Maskings of one role that differ between members."""

    def __init__(self, parts: Sequence[Masking], members: Sequence[tuple[int, ...]]) -> None:
        super().__init__(Options())
        self.parts = parts
        self.places = Places(members)
        self.members = sum(map(len, members))

    def hides_later(self, role: str) -> bool:
        """Tell whether no member shows a query what stands behind it."""
        return all(one.hides_later(role) for one in self.parts)

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor | None:
        """Return what each member keeps; ``lengths`` are those of one member after another."""
        # One length stands for all sentences, as a cached step has it.
        rows = lengths.expand(self.members).unsqueeze(1) if len(lengths) == 1 else (lengths.view(self.members, -1))
        found = []
        for number, part in enumerate(self.parts):
            own = self.places.take(rows, number)
            mask = part.mask(role, query_positions, key_positions, own.flatten())
            if mask is None:
                mask = torch.ones(1, 1, 1, dtype=torch.bool, device=lengths.device)
            sentences = 1 if len(mask) == 1 else own.shape[1]
            found.append(mask.view(-1, sentences, *mask.shape[1:]))
        shape = (rows.shape[1], len(query_positions), len(key_positions))
        wide = [one.expand(len(members), *shape) for one, members in zip(found, self.places.members, strict=True)]
        return self.places.join(wide).flatten(0, 1)
