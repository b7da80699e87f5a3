"""The design of an experiment: axes to variants, what is left out, and what is compared."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from headtohead.errors import nearest
from headtohead.experiment.contrasts import Factorial, factor_contrasts
from headtohead.experiment.draft import FAMILIES, SECTIONS, Draft, assignment_order
from headtohead.experiment.identity import canonical
from headtohead.experiment.labels import Scalar, label_at, slug_of, title_of, value_at
from headtohead.experiment.loading import LoadedExperiment
from headtohead.experiment.places import Place, shown
from headtohead.experiment.resolve import contradiction, merge_base, resolve_draft, resolve_sound
from headtohead.experiment.schema import DesignBlock, RunConfig, Runtime
from headtohead.families.entry import ROLES
from headtohead.plugins import Registry

Match = Literal["none", "parameters", "flops"]
MATCHES: tuple[Match, ...] = ("none", "parameters", "flops")

MATCH_AXIS = "match"
"""An axis that is not a field of a configuration: what its d_ff is widened to match."""


@dataclass(frozen=True)
class Variant:
    """One full configuration of the design, and what it is called."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    config: RunConfig
    match: Match = "none"


@dataclass(frozen=True)
class Excluded:
    """A combination of the design that does not run, and why; ``source`` tells who said so."""

    slug: str
    axes: Mapping[str, Scalar]
    reason: str
    source: Literal["exclude", "undefined"]

    def to_json(self) -> dict[str, Any]:
        """Return what experiment.json says of it."""
        return {
            "axes": dict(self.axes),
            "slug": self.slug,
            "reason": self.reason,
            "source": self.source,
        }


@dataclass(frozen=True)
class Design:
    """Everything that a design says, before any data is read."""

    axes: tuple[str, ...]
    variants: tuple[Variant, ...]
    baseline: str
    excluded: tuple[Excluded, ...]
    seeds: tuple[int, ...]
    factorials: tuple[Factorial, ...] = ()
    notes: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)

    def variant(self, slug: str) -> Variant:
        """Return the variant of that name."""
        return next(one for one in self.variants if one.slug == slug)

    def without(self, reasons: Mapping[str, str]) -> Design:
        """Return the design less the variants that turned out undefined, by slug and reason."""
        refused = [
            Excluded(one.slug, one.axes, reasons[one.slug], "undefined")
            for one in self.variants
            if one.slug in reasons
        ]
        kept = tuple(one for one in self.variants if one.slug not in reasons)
        return replace(self, variants=kept, excluded=(*self.excluded, *refused))

    def contrasts(self) -> list[dict[str, Any]]:
        """Return every variant against the baseline, then every axis value against its baseline."""
        titles = {one.slug: one.title for one in self.variants}
        plain = [
            {
                "kind": "variant",
                "name": f"{titles[slug]} − baseline",
                "variant": slug,
                "baseline": self.baseline,
            }
            for slug in titles
            if slug != self.baseline
        ]
        return [*plain, *factor_contrasts(self.factorials, self.labels, self.baseline, titles)]


def expand(loaded: LoadedExperiment, registry: Registry) -> Design:
    """Turn a checked experiment file into variants.

    Raises:
        HeadToHeadError: For an axis, value or exclusion that does not make sense, with its place.
    """
    return _Expansion(loaded, registry).design()


@dataclass
class _Cell:
    """A combination of axis values, resolved."""

    config: RunConfig
    match: Match
    asked: dict[str, Scalar]
    refusal: str | None


class _Expansion:
    def __init__(self, loaded: LoadedExperiment, registry: Registry) -> None:
        self.loaded, self.registry = loaded, registry
        self.start = self._starting_draft()
        self.baseline = _Cell(resolve_sound(self.start), loaded.file.match, {}, None)
        self.axes: list[str] = []
        self.cells: dict[str, _Cell] = {self._key(self.baseline): self.baseline}
        self.products: list[tuple[tuple[str, ...], dict[tuple[int, ...], str]]] = []

    def design(self) -> Design:
        for number, block in enumerate(self.loaded.file.design):
            self._block(block, self.loaded.place("design", number))
        labels = {key: self._labels(cell) for key, cell in self.cells.items()}
        slugs = _unique_slugs(labels)
        reasons, notes = self._exclusions()
        variants, excluded = [], []
        for key, cell in self.cells.items():
            axes, slug = labels[key], slugs[key]
            if key in reasons:
                excluded.append(Excluded(slug, axes, reasons[key], "exclude"))
            elif cell.refusal:
                excluded.append(Excluded(slug, axes, cell.refusal, "undefined"))
            else:
                variants.append(Variant(slug, title_of(axes), axes, cell.config, cell.match))
        return Design(
            axes=tuple(self.axes),
            variants=tuple(variants),
            baseline=slugs[self._key(self.baseline)],
            excluded=tuple(excluded),
            seeds=self.loaded.seeds,
            factorials=tuple(
                Factorial(axes, {cell: slugs[key] for cell, key in cells.items()})
                for axes, cells in self.products
            ),
            notes=tuple(notes),
            labels={slugs[key]: axes for key, axes in labels.items()},
        )

    def _starting_draft(self) -> Draft:
        draft = Draft(self.registry, self.loaded.place("base"))
        merge_base(draft, self.loaded.file.base, self.loaded.place("base"))
        draft.merge(self.loaded.file.baseline, self.loaded.place("baseline"))
        for override in self.loaded.overrides:
            draft.assign(override.path, override.value, override.place)
        return draft

    def _block(self, block: DesignBlock, place: Place) -> None:
        given = [name for name in type(block).model_fields if getattr(block, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none of them"
            raise place.error(
                f"a block has one of product, one_at_a_time, zip or path, got {names}"
            )
        if block.path is not None:
            raise place.child("path").error(
                "a path between recipes is not available in this version; "
                "use one_at_a_time or product"
            )
        place, values = place.child(given[0]), getattr(block, given[0])
        for axis, listed in values.items():
            self._check_axis(axis, listed, place.child(axis))
        indices = _combinations(given[0], values, place)
        cells = {index: self._add(values, index, place) for index in indices}
        if given[0] == "product":
            full = {
                tuple(one for one in index if one is not None): key for index, key in cells.items()
            }
            self.products.append((tuple(values), full))

    def _check_axis(self, axis: str, values: Sequence[Any], place: Place) -> None:
        path = tuple(axis.split("."))
        if axis != MATCH_AXIS and path[0] not in (*FAMILIES, *SECTIONS):
            known = [*FAMILIES, *SECTIONS, MATCH_AXIS]
            raise place.error(f"unknown axis '{axis}'{nearest(axis, known)}")
        if path[0] in SECTIONS and len(path) == 1:
            raise place.error(f"an axis is a family or one field, such as {axis}.…; got '{axis}'")
        if self._is_runtime(path):
            raise place.error(f"'{axis}' does not change a result and cannot be an axis")
        if not values:
            raise place.error("an axis needs at least one value")
        if axis not in self.axes:
            self.axes.append(axis)

    def _is_runtime(self, path: tuple[str, ...]) -> bool:
        section = SECTIONS.get(path[0])
        info = section.model_fields.get(path[1]) if section else None
        return info is not None and any(isinstance(mark, Runtime) for mark in info.metadata)

    def _add(
        self, values: Mapping[str, Sequence[Any]], index: tuple[int | None, ...], place: Place
    ) -> str:
        cell = self._cell(
            {
                axis: (values[axis][number], place.child(axis, number))
                for axis, number in zip(values, index, strict=True)
                if number is not None
            }
        )
        key = self._key(cell)
        self.cells.setdefault(key, cell)
        return key

    def _cell(self, values: Mapping[str, tuple[Any, Place]]) -> _Cell:
        draft, match = self.start.copy(), self.baseline.match
        for axis in sorted(values, key=assignment_order):
            value, place = values[axis]
            if axis == MATCH_AXIS:
                match = _match(value, place)
            else:
                draft.assign(tuple(axis.split(".")), value, place)
        config = resolve_draft(draft)
        found = contradiction(config, self.registry)
        asked: dict[str, Scalar] = {
            axis: value
            for axis, (value, _) in values.items()
            if axis in FAMILIES and isinstance(value, str)
        }
        return _Cell(config, match, asked, found[1] if found else None)

    def _key(self, cell: _Cell) -> str:
        """Return what tells combinations apart; options say where data is, before it is read."""
        identity = canonical(cell.config, "", self.registry)
        return json.dumps([identity, cell.config.data.options, cell.match], sort_keys=True)

    def _labels(self, cell: _Cell) -> dict[str, Scalar]:
        labels: dict[str, Scalar] = {}
        for axis in self.axes:
            if axis == MATCH_AXIS:
                labels[axis] = cell.match
            else:
                found = label_at(cell.config, tuple(axis.split(".")), self.registry)
                labels[axis] = cell.asked.get(axis, found)
        return labels

    def _exclusions(self) -> tuple[dict[str, str], list[str]]:
        reasons: dict[str, str] = {}
        notes: list[str] = []
        baseline = self._key(self.baseline)
        for number, exclusion in enumerate(self.loaded.file.exclude):
            place = self.loaded.place("exclude", number)
            conditions = self._conditions(exclusion.when, place.child("when"))
            hit = [key for key, cell in self.cells.items() if all(one(cell) for one in conditions)]
            if baseline in hit:
                raise place.error(
                    "this leaves out the baseline, which every variant is compared with"
                )
            if not hit:
                notes.append(f"{place}: no variant matches, nothing is left out")
            for key in hit:
                reasons.setdefault(key, exclusion.reason)
        return reasons, notes

    def _conditions(self, when: Mapping[str, Any], place: Place) -> list[Any]:
        if not when:
            raise place.error("expected axis values, got none")
        return [self._condition(axis, value, place.child(axis)) for axis, value in when.items()]

    def _condition(self, axis: str, value: Any, place: Place) -> Any:
        if axis == MATCH_AXIS:
            wanted = _match(value, place)
            return lambda cell: cell.match == wanted
        if axis not in self.axes and axis.split(".")[0] not in (*FAMILIES, *SECTIONS):
            raise place.error(f"unknown axis '{axis}'{nearest(axis, self.axes)}")
        path = tuple(axis.split("."))
        draft = self.start.copy()
        draft.assign(path, value, place)
        target = value_at(resolve_draft(draft), path, self.registry)
        named_only = isinstance(value, str) and path[0] in FAMILIES

        def holds(cell: _Cell) -> bool:
            found = value_at(cell.config, path, self.registry)
            return bool(_names(found) == _names(target) if named_only else found == target)

        return holds


def _combinations(
    kind: str, values: Mapping[str, Sequence[Any]], place: Place
) -> list[tuple[int | None, ...]]:
    """Return, per combination, the number of the value of each axis; None keeps the baseline's."""
    lengths = [len(one) for one in values.values()]
    if kind == "product":
        return list(itertools.product(*(range(length) for length in lengths)))
    if kind == "zip":
        if len(set(lengths)) > 1:
            counts = ", ".join(f"{axis} has {len(one)}" for axis, one in values.items())
            raise place.error(f"zip needs lists of equal length; {counts}")
        return [(number,) * len(lengths) for number in range(lengths[0] if lengths else 0)]
    return [
        tuple(value if number == axis else None for number in range(len(lengths)))
        for axis, length in enumerate(lengths)
        for value in range(length)
    ]


def _unique_slugs(labels: Mapping[str, Mapping[str, Scalar]]) -> dict[str, str]:
    """Name every combination; where two would share a name, a hash of the configuration tells."""
    plain = {key: slug_of(axes) for key, axes in labels.items()}
    times = Counter(plain.values())
    return {
        key: slug if times[slug] == 1 else f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
        for key, slug in plain.items()
    }


def _match(value: Any, place: Place) -> Match:
    if value not in MATCHES:
        hint = nearest(value, MATCHES) if isinstance(value, str) else ""
        raise place.error(f"expected one of {', '.join(MATCHES)}, got {shown(value)}{hint}")
    return cast("Match", value)


def _names(value: Any) -> Any:
    """Strip options: names by role, or one name."""
    if isinstance(value, Mapping) and set(value) == set(ROLES):
        return {role: value[role]["name"] for role in ROLES}
    return value["name"] if isinstance(value, Mapping) else value
