"""A path between two configurations: what differs, and walks that change one difference at a time.

A choice is one difference between the ends. A walk applies all choices in one order; a choice's
share is the change that it makes, averaged over orders. Over all n! orders that is the Shapley
value (L. S. Shapley, A value for n-person games, Annals of Mathematics Studies 28, 1953), and over
orders drawn at random an estimate of it (J. Castro, D. Gómez and J. Tejada, Polynomial calculation
of the Shapley value based on sampling, Computers & Operations Research 36(5), 2009). Every order is
followed by its reverse: two choices that depend on each other then stand each way round equally
often. Walks between two configurations are Fawcett and Hoos's ablation (Journal of Heuristics
22(4), 2016), which follows a single, greedy order.

A point without a meaning cannot be trained, and an order that passes one is replaced by an order
that passes none. Where too few of those are found, the walk steps over the point, and the choices
around it are applied together.
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
from headtohead.config.labels import Scalar, entry_label, label_at, shortened_slug, slug_word, text
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.exclusions import Incompatibility
from headtohead.plugins.registry import Registry
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

Field = tuple[str, ...]
"""A field of a configuration; an entry stands for its options too."""

Applied = frozenset[str]
"""A point of a path: the names of the choices that have the value of its end."""

TOGETHER: tuple[tuple[Field, ...], ...] = (
    (("data", "dataset"), ("data", "split")),
    (("train", "epochs"), ("train", "steps")),
    (("train", "batch_tokens"), ("train", "length_buckets"), ("train", "batch_size"), ("quirks", "pad_to")),
)
"""Fields that mean nothing without one another: where several differ, they are one choice."""

TRIES = 400
"""Orders looked at before walks are taken that step over points without a meaning."""


@dataclass(frozen=True)
class Choice:
    """One difference: its fields, and their values at both ends in words."""

    name: str
    fields: tuple[Field, ...]
    before: Scalar
    after: Scalar


@dataclass(frozen=True)
class Step:
    """Choices applied at once, usually one, and the point they lead to."""

    choices: tuple[str, ...]
    point: Applied


@dataclass(frozen=True)
class Point:
    """A configuration on the path; ``refusal`` tells why it cannot be trained."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    config: RunConfig
    refusal: Incompatibility | None


@dataclass(frozen=True)
class Apart:
    """A choice that has no meaning alone at an end, and those with which it has one."""

    choice: str
    end: str
    reason: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Path:
    """The points between two configurations and the walks over them.

    ``tried`` orders were drawn of ``possible``; ``blocked`` counts, by reason, those that pass a
    point without a meaning. Walks that do are taken only where too few others were found.
    """

    names: tuple[str, str]
    choices: tuple[Choice, ...]
    points: Mapping[Applied, Point]
    walks: tuple[tuple[Step, ...], ...]
    apart: tuple[Apart, ...]
    tried: int
    blocked: Mapping[str, int]
    orders_seed: int

    @property
    def possible(self) -> int:
        """The number of all orders."""
        return math.factorial(len(self.choices))

    @cached_property
    def everything(self) -> Applied:
        """The point where all choices are applied: the end."""
        return frozenset(choice.name for choice in self.choices)

    @property
    def ends(self) -> tuple[Point, Point]:
        """Where the path starts and where it ends."""
        return self.points[frozenset()], self.points[self.everything]

    def inside(self) -> list[Point]:
        """Return the points that are trained for walks alone: no ends, no single differences."""
        single = {1, len(self.choices) - 1, 0, len(self.choices)}
        return [point for applied, point in self.points.items() if len(applied) not in single and not point.refusal]

    def slug(self, applied: Applied) -> str | None:
        """Return the name of a point that is trained, None for one that has no meaning."""
        point = self.points[applied]
        return None if point.refusal else point.slug

    def contrasts(self) -> list[ContrastRecord]:
        """Return the whole distance, then each choice's steps, one pair of slugs per walk.

        Choices that were applied at once in some walk are a contrast of their own.
        """
        start, end = self.ends
        whole = VariantContrast(name=f"{end.title} − {start.title}", variant=end.slug, baseline=start.slug)
        steps: dict[Applied, list[tuple[str, str]]] = {frozenset([c.name]): [] for c in self.choices}
        for walk in self.walks:
            here = start.slug
            for step in walk:
                there = self.points[step.point].slug
                steps.setdefault(frozenset(step.choices), []).append((there, here))
                here = there
        return [whole, *(self._contrast(group, pairs) for group, pairs in steps.items() if pairs)]

    def _contrast(self, group: Applied, pairs: list[tuple[str, str]]) -> ChoiceContrast:
        names = tuple(choice.name for choice in self.choices if choice.name in group)
        return ChoiceContrast(name=" with ".join(names), choices=names, pairs=tuple(pairs))

    @property
    def record(self) -> PathRecord:
        """The path as ``experiment.json`` holds it."""
        start, end = self.ends
        return PathRecord(
            start=PathEnd(slug=start.slug, name=self.names[0]),
            end=PathEnd(slug=end.slug, name=self.names[1]),
            choices=tuple(self._choice(choice) for choice in self.choices),
            walks=tuple(
                tuple(PathStep(choices=step.choices, slug=self.points[step.point].slug) for step in walk)
                for walk in self.walks
            ),
            orders=PathOrders(possible=self.possible, tried=self.tried, blocked=self.blocked, seed=self.orders_seed),
            apart=tuple(InseparableChoice(**vars(one)) for one in self.apart),
        )

    def _choice(self, choice: Choice) -> PathChoice:
        alone = frozenset([choice.name])
        return PathChoice(
            name=choice.name,
            fields=tuple(".".join(field) for field in choice.fields),
            before=choice.before,
            after=choice.after,
            alone=self.slug(alone),
            without=self.slug(self.everything - alone),
        )

    def notes(self) -> list[str]:
        """Return what a reader of the plan should know of the walks."""
        walked = len(self.walks)
        if walked == self.possible:
            notes = [f"path: all {walked} orders of {len(self.choices)} choices are walked"]
        else:
            notes = [
                f"path: {walked} of {self.possible:,} orders are walked, drawn with seed "
                f"{self.orders_seed}; the others are not sampled"
            ]
        barred = sum(self.blocked.values())
        if barred:
            notes.append(
                f"path: {barred} of {self.tried} orders looked at pass a point without "
                f"a meaning ({'; '.join(self.blocked)})"
            )
        for one in self.apart:
            partners = f"; not without {' or '.join(one.needs)}" if one.needs else ""
            what = "alone" if one.end == "from" else "taken out"
            notes.append(f"path: {one.choice} {what} has no meaning: {one.reason}{partners}")
        joint = Counter(step.choices for walk in self.walks for step in walk if len(step.choices) > 1)
        for group, times in joint.items():
            notes.append(
                f"path: {' and '.join(group)} are applied together in {times} of "
                f"{walked} walks, being undefined apart there"
            )
        return notes


def choices_between(
    start: RunConfig,
    end: RunConfig,
    identity: Callable[[RunConfig], str],
    together: Mapping[str, Sequence[str]],
    registry: Registry,
    location: SourceLocation,
) -> tuple[Choice, ...]:
    """Return the differences that a result depends on, in the order of the schema.

    Args:
        start: Where the path starts, resolved.
        end: Where it ends, resolved.
        identity: Text that is equal for configurations with equal results.
        together: Fields that are one choice, by the choice's name.
        registry: Where entries are looked up.
        place: Of ``together`` in the file.

    Raises:
        HeadToHeadError: If ``together`` names no field, or one field twice.
    """
    groups = [*_named_groups(together, list(_fields()), location), *((None, g) for g in TOGETHER)]
    left = [field for field in _fields() if identity(moved(start, [field], end)) != identity(start)]
    found: dict[tuple[Field, ...], str] = {}
    for field in left:
        name, group = next(((n, g) for n, g in groups if field in g), (None, (field,)))
        members = tuple(one for one in left if one in group)
        found[members] = name or _joined(members)
    _refuse_equal_names(list(found.values()), location)
    return tuple(
        Choice(name, fields, _value(start, fields, registry), _value(end, fields, registry))
        for fields, name in found.items()
    )


def moved(config: RunConfig, fields: Collection[Field], source: RunConfig) -> RunConfig:
    """Return a configuration with these fields as they are in another one."""
    content, other = config.model_dump(), source.model_dump()
    for *above, last in fields:
        here, there = content, other
        for part in above:
            here, there = here[part], there[part]
        here[last] = there[last]
        if (*above, last) == ("data", "dataset"):
            here["options"] = there["options"]
    return RunConfig.model_validate(content)


def lay_path(
    ends: tuple[RunConfig, RunConfig],
    names: tuple[str, str],
    choices: tuple[Choice, ...],
    refusal: Callable[[RunConfig], Incompatibility | None],
    orders: int,
    orders_seed: int,
) -> Path:
    """Choose the walks of a path, at least ``orders`` of them where there are so many orders.

    Args:
        ends: Both configurations, which have a meaning.
        names: What the ends are called.
        choices: The differences between them.
        refusal: Tells why a configuration cannot be trained, or None.
        orders: How many orders to walk.
        orders_seed: Of the draw.
    """
    by_name = {choice.name: choice for choice in choices}

    def config_of(applied: Applied) -> RunConfig:
        fields = [field for name in applied for field in by_name[name].fields]
        return moved(ends[0], fields, ends[1])

    @cache
    def refused(applied: Applied) -> Incompatibility | None:
        if len(applied) in (0, len(choices)):
            return None
        return refusal(config_of(applied))

    chosen = _chosen_orders(tuple(by_name), refused, orders, orders_seed)
    walks = tuple(_walk(order, refused) for order in chosen.orders)
    points = {
        applied: Point(slug, title, _axes(choices, applied), config_of(applied), refused(applied))
        for applied, (slug, title) in _point_names(names, tuple(by_name), chosen.orders).items()
    }
    return Path(
        names=names,
        choices=choices,
        points=points,
        walks=walks,
        apart=_apart(tuple(by_name), refused),
        tried=chosen.tried,
        blocked=chosen.blocked,
        orders_seed=orders_seed,
    )


def drawn_orders(names: Sequence[str], seed: int) -> Iterator[tuple[str, ...]]:
    """Yield orders at random, none twice, each followed by its reverse, until all are there.

    An order is that of hashes, so that it is the same on any machine and in any version.
    """
    seen: set[tuple[str, ...]] = set()
    for draw in itertools.count():
        hashes = {name: hashlib.sha256(f"{seed} {draw} {name}".encode()).digest() for name in names}
        order = tuple(sorted(names, key=hashes.__getitem__))
        for one in (order, order[::-1]):
            if one not in seen:
                seen.add(one)
                yield one
        if len(seen) == math.factorial(len(names)):
            return


@dataclass(frozen=True)
class _Chosen:
    """Orders to walk, how many were looked at, and what those that pass nothing pass."""

    orders: tuple[tuple[str, ...], ...]
    tried: int
    blocked: Mapping[str, int]


def _chosen_orders(
    names: tuple[str, ...], refused: Callable[[Applied], Incompatibility | None], wanted: int, seed: int
) -> _Chosen:
    free: list[tuple[str, ...]] = []
    barred: list[tuple[str, ...]] = []
    blocked: Counter[str] = Counter()
    for order in itertools.islice(drawn_orders(names, seed), TRIES):
        reasons = (found.reason for point in _passed(order) if (found := refused(point)))
        reason = next(reasons, None)
        if reason is None:
            free.append(order)
        else:
            barred.append(order)
            blocked[reason] += 1
        if len(free) == wanted:
            break
    # all orders are walked where there are no more of them than were asked for
    kept = [*free, *barred[: wanted - len(free)]]
    return _Chosen(tuple(kept), len(free) + len(barred), dict(blocked))


def _passed(order: Sequence[str]) -> Iterator[Applied]:
    """Yield the points between the ends."""
    return (frozenset(order[:length]) for length in range(1, len(order)))


def _walk(order: Sequence[str], refused: Callable[[Applied], Incompatibility | None]) -> tuple[Step, ...]:
    steps, waiting = [], []
    for number, name in enumerate(order, 1):
        waiting.append(name)
        point = frozenset(order[:number])
        if not refused(point):
            steps.append(Step(tuple(waiting), point))
            waiting = []
    return tuple(steps)


def _apart(names: tuple[str, ...], refused: Callable[[Applied], Incompatibility | None]) -> tuple[Apart, ...]:
    found = []
    for name, end in itertools.product(names, ("from", "to")):

        def at(*changed: str, end: str = end) -> Applied:
            return frozenset(changed) if end == "from" else frozenset(names) - {*changed}

        refusal = refused(at(name))
        if refusal:
            others = (other for other in names if other != name)
            needs = tuple(other for other in others if not refused(at(name, other)))
            found.append(Apart(name, end, refusal.reason, needs))
    return tuple(found)


def _point_names(
    ends: tuple[str, str], names: tuple[str, ...], orders: Sequence[Sequence[str]]
) -> dict[Applied, tuple[str, str]]:
    """Name every point once, as slug and title: ends, single differences, then steps of walks."""
    everything = frozenset(names)
    titles: dict[Applied, tuple[str, str]] = {
        frozenset(): ("from", f"from {ends[0]}"),
        everything: ("to", f"to {ends[1]}"),
    }
    for name in names:
        slug = shortened_slug(f"from-plus-{slug_word(name)}")
        titles.setdefault(frozenset([name]), (slug, f"from + {name}"))
    for name in names:
        slug = shortened_slug(f"to-minus-{slug_word(name)}")
        titles.setdefault(everything - {name}, (slug, f"to − {name}"))
    for walk, order in enumerate(orders, 1):
        for step, point in enumerate(_passed(order), 1):
            titles.setdefault(point, (f"walk-{walk}-step-{step}", f"walk {walk} step {step}"))
    return titles


def _axes(choices: Sequence[Choice], applied: Applied) -> dict[str, Scalar]:
    return {one.name: one.after if one.name in applied else one.before for one in choices}


def _fields() -> Iterator[Field]:
    """Yield what a choice may consist of: every field, a whole entry for each role."""
    for name, info in RunConfig.model_fields.items():
        if name in FAMILIES:
            yield from ((name, role) for role in ROLES)
        else:
            yield from _fields_of(info.annotation, (name,))


def _fields_of(section: Any, above: Field) -> Iterator[Field]:
    for name, info in section.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields_of(inner, (*above, name))
        elif (*above, name) != ("data", "options"):
            yield (*above, name)


def _named_groups(
    together: Mapping[str, Sequence[str]], known: Sequence[Field], location: SourceLocation
) -> list[tuple[str | None, tuple[Field, ...]]]:
    groups: list[tuple[str | None, tuple[Field, ...]]] = []
    taken: dict[Field, str] = {}
    for name, listed in together.items():
        members: list[Field] = []
        for number, written in enumerate(listed):
            where, path = location.child(name, number), tuple(written.split("."))
            found = [field for field in known if field[: len(path)] == path]
            if not found:
                names = [".".join(field) for field in known]
                raise where.error(f"unknown field '{written}'{nearest(written, names)}")
            for field in found:
                if field in taken:
                    raise where.error(f"'{'.'.join(field)}' already belongs to '{taken[field]}'")
                taken[field] = name
            members += found
        groups.append((name, tuple(members)))
    return groups


def _refuse_equal_names(names: Sequence[str], location: SourceLocation) -> None:
    """Raise for a name that another choice has too, or has in the name of a folder."""
    for word, times in Counter(slug_word(name) for name in names).items():
        if times > 1:
            raise location.error(f"two choices are called '{word}'; name one of them otherwise")


def _joined(fields: Sequence[Field]) -> str:
    """Name a choice after its fields: ``train.batch_tokens+batch_size``."""
    first, *others = fields
    return "+".join([".".join(first), *(field[-1] for field in others)])


def _value(config: RunConfig, fields: Sequence[Field], registry: Registry) -> Scalar:
    values = [_field_value(config, field, registry) for field in fields]
    if len(fields) == 1:
        return values[0]
    return ", ".join(f"{field[-1]} {text(one)}" for field, one in zip(fields, values, strict=True))


def _field_value(config: RunConfig, field: Field, registry: Registry) -> Scalar:
    if field == ("data", "dataset"):
        dataset = EntryConfig(name=config.data.dataset, options=config.data.options)
        return entry_label("dataset", dataset, registry)
    value = label_at(config, field, registry)
    return "nothing" if value in ("", None) else value
