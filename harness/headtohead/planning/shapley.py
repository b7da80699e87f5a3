"""Shapley paths: the differences between two configurations, applied in several permutations.

A choice is a difference between the two ends of a path. A permutation applies all choices one after
another, starting from the first end; the set of choices applied so far is a coalition. The Shapley
value of a choice is the change that it causes, averaged over all n! permutations (L. S. Shapley, A
value for n-person games, Annals of Mathematics Studies 28, 1953). Averaged over sampled permutations
it is an estimate (J. Castro, D. Gómez and J. Tejada, Polynomial calculation of the Shapley value based
on sampling, Computers & Operations Research 36(5), 2009). Every sampled permutation is followed by its
reverse, so that each of two interacting choices comes first equally often. A single, greedy
permutation is the ablation analysis of C. Fawcett and H. H. Hoos (Journal of Heuristics 22(4), 2016).

An incompatible coalition cannot be trained. Permutations without incompatible coalitions are preferred.
If there are too few of them, a permutation skips its incompatible coalitions and applies the choices
around them as a group.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from pydantic import BaseModel

from headtohead.config.builder import FAMILIES
from headtohead.config.labels import Scalar, entry_label, label_at, listed, shortened_slug, slug_word, text
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.exclusions import Incompatibility
from headtohead.plugins.registry import Registry
from headtohead.schema.config_input import INIT_FROM
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import EntryConfig, RunConfig
from headtohead.storage.records import (
    ChoiceContrast,
    ContrastRecord,
    InseparableChoice,
    PathChoice,
    PathEnd,
    PathOrders,
    PathRecord,
    PathStep,
    VariantContrast,
)

FieldPath = tuple[str, ...]
"""Path of a configuration field; the path of a plugin entry includes the entry's options."""

AppliedChoices = frozenset[str]
"""The names of the choices of a coalition: those that have the value of the path's end."""

GROUPS: tuple[tuple[FieldPath, ...], ...] = (
    (("data", "dataset"), ("data", "split")),
    (("train", "epochs"), ("train", "steps")),
    (("train", "batch_tokens"), ("train", "length_buckets"), ("train", "batch_size"), ("quirks", "pad_to")),
)
"""Fields that depend on each other: if several of a group differ, they form one choice."""

MAX_SAMPLED = 400
"""Permutations that are sampled before permutations with incompatible coalitions are used."""


@dataclass(frozen=True)
class ShapleyChoice:
    """A difference between the ends: its fields, and their labels at both ends."""

    name: str
    fields: tuple[FieldPath, ...]
    before: Scalar
    after: Scalar


@dataclass(frozen=True)
class ShapleyStep:
    """The choices that a step of a permutation applies, usually one, and the resulting coalition."""

    choices: tuple[str, ...]
    coalition: AppliedChoices


@dataclass(frozen=True)
class Coalition:
    """The configuration of a set of applied choices; ``incompatibility`` is the reason if it cannot run."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    config: RunConfig
    incompatibility: Incompatibility | None


@dataclass(frozen=True)
class ShapleyPath:
    """The coalitions between two configurations and the permutations that visit them.

    ``tried`` of ``possible`` permutations were sampled. ``blocked`` counts, by reason, the sampled permutations
    with an incompatible coalition; they are used only if there are too few others.
    """

    names: tuple[str, str]
    choices: tuple[ShapleyChoice, ...]
    coalitions: Mapping[AppliedChoices, Coalition]
    permutations: tuple[tuple[ShapleyStep, ...], ...]
    inseparable: tuple[InseparableChoice, ...]
    tried: int
    blocked: Mapping[str, int]
    orders_seed: int

    @property
    def possible(self) -> int:
        """The number of all permutations."""
        return math.factorial(len(self.choices))

    @cached_property
    def all_choices(self) -> AppliedChoices:
        """The coalition of all choices: the end."""
        return frozenset(choice.name for choice in self.choices)

    @property
    def ends(self) -> tuple[Coalition, Coalition]:
        """The coalitions without any choice and with all choices."""
        return self.coalitions[frozenset()], self.coalitions[self.all_choices]

    def inside(self) -> list[Coalition]:
        """Return the trained coalitions other than the ends and the single differences."""
        single = {1, len(self.choices) - 1, 0, len(self.choices)}
        return [
            coalition
            for applied, coalition in self.coalitions.items()
            if len(applied) not in single and not coalition.incompatibility
        ]

    def slug(self, applied: AppliedChoices) -> str | None:
        """Return the slug of a coalition, or None if it is incompatible."""
        coalition = self.coalitions[applied]
        return None if coalition.incompatibility else coalition.slug

    def contrasts(self) -> list[ContrastRecord]:
        """Return the total difference, then a contrast per choice with a pair of slugs per permutation.

        Choices that a permutation applies as a group have a contrast of their own.
        """
        start, end = self.ends
        total = VariantContrast(name=f"{end.title} − {start.title}", variant=end.slug, baseline=start.slug)
        steps: dict[AppliedChoices, list[tuple[str, str]]] = {frozenset([c.name]): [] for c in self.choices}
        for permutation in self.permutations:
            before = start.slug
            for step in permutation:
                after = self.coalitions[step.coalition].slug
                steps.setdefault(frozenset(step.choices), []).append((after, before))
                before = after
        return [total, *(self._contrast(group, pairs) for group, pairs in steps.items() if pairs)]

    def _contrast(self, group: AppliedChoices, pairs: list[tuple[str, str]]) -> ChoiceContrast:
        names = tuple(choice.name for choice in self.choices if choice.name in group)
        return ChoiceContrast(name=" with ".join(names), choices=names, pairs=tuple(pairs))

    @property
    def record(self) -> PathRecord:
        """The path's entry in ``experiment.json``."""
        start, end = self.ends
        return PathRecord(
            start=PathEnd(slug=start.slug, name=self.names[0]),
            end=PathEnd(slug=end.slug, name=self.names[1]),
            choices=tuple(self._choice(choice) for choice in self.choices),
            permutations=tuple(
                tuple(PathStep(choices=step.choices, slug=self.coalitions[step.coalition].slug) for step in permutation)
                for permutation in self.permutations
            ),
            orders=PathOrders(possible=self.possible, tried=self.tried, blocked=self.blocked, seed=self.orders_seed),
            inseparable=self.inseparable,
        )

    def _choice(self, choice: ShapleyChoice) -> PathChoice:
        alone = frozenset([choice.name])
        return PathChoice(
            name=choice.name,
            fields=tuple(".".join(field) for field in choice.fields),
            before=choice.before,
            after=choice.after,
            alone=self.slug(alone),
            without=self.slug(self.all_choices - alone),
        )

    def notes(self) -> list[str]:
        """Return notes on the permutations for the plan."""
        count = len(self.permutations)
        if count == self.possible:
            notes = [f"path: all {count} permutations of {len(self.choices)} choices are evaluated"]
        else:
            notes = [
                f"path: {count} of {self.possible:,} permutations are evaluated, sampled with seed {self.orders_seed}"
            ]
        incompatible = sum(self.blocked.values())
        if incompatible:
            notes.append(
                f"path: {incompatible} of {self.tried} sampled permutations contain an incompatible coalition "
                f"({'; '.join(self.blocked)})"
            )
        for choice in self.inseparable:
            partners = f"; it requires {' or '.join(choice.needs)}" if choice.needs else ""
            position = "applied alone" if choice.end == "from" else "removed alone"
            notes.append(f"path: {choice.choice} is incompatible when {position}: {choice.reason}{partners}")
        groups = Counter(
            step.choices for permutation in self.permutations for step in permutation if len(step.choices) > 1
        )
        for group, times in groups.items():
            notes.append(
                f"path: {listed(group)} are applied as a group in {times} of {count} permutations, "
                "because the coalitions between them are incompatible"
            )
        return notes


def choices_between(
    start: RunConfig,
    end: RunConfig,
    identity: Callable[[RunConfig], str],
    groups: Mapping[str, Sequence[str]],
    registry: Registry,
    location: SourceLocation,
) -> tuple[ShapleyChoice, ...]:
    """Return the choices of a path: differences that a result depends on, in the order of the schema.

    Args:
        start: The start of the path, resolved.
        end: The end of the path, resolved.
        identity: Returns a text that is equal for configurations with equal results.
        groups: Fields that form one choice, by the name of the choice.
        registry: Provides the plugin entries.
        location: Location of the groups in the experiment file.

    Raises:
        HeadToHeadError: If a group contains an unknown field, or two groups contain the same field.
    """
    known_groups = [*_named_groups(groups, list(_fields()), location), *((None, group) for group in GROUPS)]
    differing = [field for field in _fields() if identity(with_fields_from(start, [field], end)) != identity(start)]
    names: dict[tuple[FieldPath, ...], str] = {}
    for field in differing:
        name, group = next(((n, g) for n, g in known_groups if field in g), (None, (field,)))
        members = tuple(member for member in differing if member in group)
        names[members] = name or _joined(members)
    _refuse_equal_names(list(names.values()), location)
    return tuple(
        ShapleyChoice(name, fields, _value(start, fields, registry), _value(end, fields, registry))
        for fields, name in names.items()
    )


def with_fields_from(config: RunConfig, fields: Collection[FieldPath], source: RunConfig) -> RunConfig:
    """Return ``config`` with the values of these fields taken from ``source``."""
    content, other = config.model_dump(), source.model_dump()
    for *above, last in fields:
        target, origin = content, other
        for part in above:
            target, origin = target[part], origin[part]
        target[last] = origin[last]
        if (*above, last) == ("data", "dataset"):
            target["options"] = origin["options"]
    return RunConfig.model_validate(content)


def build_path(
    ends: tuple[RunConfig, RunConfig],
    names: tuple[str, str],
    choices: tuple[ShapleyChoice, ...],
    find_incompatibility: Callable[[RunConfig], Incompatibility | None],
    orders: int,
    orders_seed: int,
) -> ShapleyPath:
    """Return a path with at least ``orders`` permutations, or all if there are fewer.

    Args:
        ends: The two configurations; both can run.
        names: Display names of the ends.
        choices: The differences between the ends.
        find_incompatibility: Returns why a configuration cannot run, or None.
        orders: Number of permutations.
        orders_seed: Seed of the sampled permutations.
    """
    by_name = {choice.name: choice for choice in choices}

    def config_of(applied: AppliedChoices) -> RunConfig:
        fields = [field for name in applied for field in by_name[name].fields]
        return with_fields_from(ends[0], fields, ends[1])

    @cache
    def incompatibility(applied: AppliedChoices) -> Incompatibility | None:
        if len(applied) in (0, len(choices)):
            return None
        return find_incompatibility(config_of(applied))

    selected = _select_orders(tuple(by_name), incompatibility, orders, orders_seed)
    permutations = tuple(_steps(order, incompatibility) for order in selected.orders)
    coalitions = {
        applied: Coalition(slug, title, _axes(choices, applied), config_of(applied), incompatibility(applied))
        for applied, (slug, title) in _coalition_names(names, tuple(by_name), selected.orders).items()
    }
    return ShapleyPath(
        names=names,
        choices=choices,
        coalitions=coalitions,
        permutations=permutations,
        inseparable=_find_inseparable(tuple(by_name), incompatibility),
        tried=selected.tried,
        blocked=selected.blocked,
        orders_seed=orders_seed,
    )


def sample_orders(names: Sequence[str], seed: int) -> Iterator[tuple[str, ...]]:
    """Yield all permutations in random order without repeats, each followed by its reverse.

    The choices are sorted by hashes, so that a seed gives the same permutations on every machine and in every
    version.
    """
    yielded: set[tuple[str, ...]] = set()
    for draw in itertools.count():
        hashes = {name: hashlib.sha256(f"{seed} {draw} {name}".encode()).digest() for name in names}
        order = tuple(sorted(names, key=hashes.__getitem__))
        for permutation in (order, order[::-1]):
            if permutation not in yielded:
                yielded.add(permutation)
                yield permutation
        if len(yielded) == math.factorial(len(names)):
            return


@dataclass(frozen=True)
class _SelectedOrders:
    """Selected orders, the number of sampled ones, and counts of those with an incompatible coalition by reason."""

    orders: tuple[tuple[str, ...], ...]
    tried: int
    blocked: Mapping[str, int]


def _select_orders(
    names: tuple[str, ...], incompatibility: Callable[[AppliedChoices], Incompatibility | None], count: int, seed: int
) -> _SelectedOrders:
    compatible: list[tuple[str, ...]] = []
    incompatible: list[tuple[str, ...]] = []
    blocked: Counter[str] = Counter()
    for order in itertools.islice(sample_orders(names, seed), max(MAX_SAMPLED, count)):
        reasons = (problem.reason for applied in _between_ends(order) if (problem := incompatibility(applied)))
        reason = next(reasons, None)
        if reason is None:
            compatible.append(order)
        else:
            incompatible.append(order)
            blocked[reason] += 1
        if len(compatible) == count:
            break
    selected = [*compatible, *incompatible[: count - len(compatible)]]
    return _SelectedOrders(tuple(selected), len(compatible) + len(incompatible), dict(blocked))


def _between_ends(order: Sequence[str]) -> Iterator[AppliedChoices]:
    """Yield the coalitions of an order between the ends."""
    return (frozenset(order[:length]) for length in range(1, len(order)))


def _steps(
    order: Sequence[str], incompatibility: Callable[[AppliedChoices], Incompatibility | None]
) -> tuple[ShapleyStep, ...]:
    steps, pending = [], []
    for length, name in enumerate(order, 1):
        pending.append(name)
        applied = frozenset(order[:length])
        if not incompatibility(applied):
            steps.append(ShapleyStep(tuple(pending), applied))
            pending = []
    return tuple(steps)


def _find_inseparable(
    names: tuple[str, ...], incompatibility: Callable[[AppliedChoices], Incompatibility | None]
) -> tuple[InseparableChoice, ...]:
    inseparable = []
    for name, end in itertools.product(names, ("from", "to")):

        def at(*changed: str, end: str = end) -> AppliedChoices:
            return frozenset(changed) if end == "from" else frozenset(names) - {*changed}

        alone = incompatibility(at(name))
        if alone:
            others = (other for other in names if other != name)
            needs = tuple(other for other in others if not incompatibility(at(name, other)))
            inseparable.append(InseparableChoice(choice=name, end=end, reason=alone.reason, needs=needs))
    return tuple(inseparable)


def _coalition_names(
    ends: tuple[str, str], names: tuple[str, ...], orders: Sequence[Sequence[str]]
) -> dict[AppliedChoices, tuple[str, str]]:
    """Return slug and title by coalition: ends, single differences, then the steps of permutations."""
    all_choices = frozenset(names)
    titles: dict[AppliedChoices, tuple[str, str]] = {
        frozenset(): ("from", f"from {ends[0]}"),
        all_choices: ("to", f"to {ends[1]}"),
    }
    for name in names:
        slug = shortened_slug(f"from-plus-{slug_word(name)}")
        titles.setdefault(frozenset([name]), (slug, f"from + {name}"))
    for name in names:
        slug = shortened_slug(f"to-minus-{slug_word(name)}")
        titles.setdefault(all_choices - {name}, (slug, f"to − {name}"))
    for permutation, order in enumerate(orders, 1):
        for step, applied in enumerate(_between_ends(order), 1):
            titles.setdefault(
                applied, (f"permutation-{permutation}-step-{step}", f"permutation {permutation} step {step}")
            )
    return titles


def _axes(choices: Sequence[ShapleyChoice], applied: AppliedChoices) -> dict[str, Scalar]:
    return {choice.name: choice.after if choice.name in applied else choice.before for choice in choices}


def _fields() -> Iterator[FieldPath]:
    """Yield the fields that a choice can consist of; a plugin entry with its options is one field per role."""
    for name, info in RunConfig.model_fields.items():
        if name in FAMILIES:
            yield from ((name, role) for role in ROLES)
        elif name != INIT_FROM:  # the ends of a path have the same initial weights
            yield from _fields_of(info.annotation, (name,))


def _fields_of(section: Any, above: FieldPath) -> Iterator[FieldPath]:
    for name, info in section.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields_of(inner, (*above, name))
        elif (*above, name) != ("data", "options"):
            yield (*above, name)


def _named_groups(
    groups: Mapping[str, Sequence[str]], known: Sequence[FieldPath], location: SourceLocation
) -> list[tuple[str | None, tuple[FieldPath, ...]]]:
    named: list[tuple[str | None, tuple[FieldPath, ...]]] = []
    group_of: dict[FieldPath, str] = {}
    for name, fields in groups.items():
        members: list[FieldPath] = []
        for position, dotted in enumerate(fields):
            field_location, path = location.child(name, position), tuple(dotted.split("."))
            matching = [field for field in known if field[: len(path)] == path]
            if not matching:
                names = [".".join(field) for field in known]
                raise field_location.error(f"unknown field '{dotted}'{nearest(dotted, names)}")
            for field in matching:
                if field in group_of:
                    raise field_location.error(f"'{'.'.join(field)}' already belongs to '{group_of[field]}'")
                group_of[field] = name
            members += matching
        named.append((name, tuple(members)))
    return named


def _refuse_equal_names(names: Sequence[str], location: SourceLocation) -> None:
    """Raise an error if two choices have the same name, or the same name in slugs."""
    for word, times in Counter(slug_word(name) for name in names).items():
        if times > 1:
            raise location.error(f"two choices have the name '{word}'; rename one of them")


def _joined(fields: Sequence[FieldPath]) -> str:
    """Return the name of a choice with several fields: ``train.batch_tokens+batch_size``."""
    first, *others = fields
    return "+".join([".".join(first), *(field[-1] for field in others)])


def _value(config: RunConfig, fields: Sequence[FieldPath], registry: Registry) -> Scalar:
    values = [_field_value(config, field, registry) for field in fields]
    if len(fields) == 1:
        return values[0]
    return ", ".join(f"{field[-1]} {text(value)}" for field, value in zip(fields, values, strict=True))


def _field_value(config: RunConfig, field: FieldPath, registry: Registry) -> Scalar:
    if field == ("data", "dataset"):
        dataset = EntryConfig(name=config.data.dataset, options=config.data.options)
        return entry_label("dataset", dataset, registry)
    value = label_at(config, field, registry)
    return "nothing" if value in ("", None) else value
