"""The design of an experiment: what it varies to variants, what is left out, what is compared."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headtohead.config.builder import FAMILIES, ConfigBuilder, assignment_order
from headtohead.config.identity import canonical
from headtohead.config.labels import Scalar, label_at, slug_of, title_of
from headtohead.config.loading import LoadedExperiment, refuse_many_runs
from headtohead.config.resolve import build_config, build_consistent_config, merge_base, merge_recipe
from headtohead.config.source_location import SourceLocation, shown
from headtohead.errors import HeadToHeadError, nearest
from headtohead.planning.axes import MATCH_AXIS, RECIPE_AXIS, Match, check_axis, match_value, recipe_label, recipe_parts
from headtohead.planning.contrasts import Factorial, factor_contrasts
from headtohead.planning.exclusions import Incompatibilities, Undefined, defined_until_data_is_read
from headtohead.planning.published import published_record
from headtohead.planning.shapley import Path, choices_between, lay_path
from headtohead.plugins.registry import Registry
from headtohead.schema.experiment_file import PathDesign
from headtohead.schema.run_config import RunConfig
from headtohead.storage.records import ContrastRecord, ExcludedRecord, PublishedRecord, VariantContrast

TRANSLATED = ("exact_match", "bleu", "chrf")
"""Metrics of translations: there are none where nothing is decoded."""


@dataclass(frozen=True)
class Variant:
    """One full configuration of the design, and what it is called."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    config: RunConfig
    match: Match = "none"


@dataclass(frozen=True)
class Design:
    """Everything that a design says, before any run is looked for."""

    axes: tuple[str, ...]
    variants: tuple[Variant, ...]
    baseline: str
    excluded: tuple[ExcludedRecord, ...]
    seeds: tuple[int, ...]
    factorials: tuple[Factorial, ...] = ()
    notes: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    path: Path | None = None
    published: PublishedRecord | None = None

    def variant(self, slug: str) -> Variant:
        """Return the variant of that name."""
        return next(one for one in self.variants if one.slug == slug)

    def contrasts(self) -> list[ContrastRecord]:
        """Return the contrasts to test: every variant against the baseline, then every axis value.

        The contrasts of a path are the distance between its ends, then every choice.
        """
        if self.path:
            return self.path.contrasts()
        titles = {one.slug: one.title for one in self.variants}
        plain = [
            VariantContrast(name=f"{titles[slug]} − baseline", variant=slug, baseline=self.baseline)
            for slug in titles
            if slug != self.baseline
        ]
        return [*plain, *factor_contrasts(self.factorials, self.labels, self.baseline, titles)]


def expand(loaded: LoadedExperiment, registry: Registry, undefined: Undefined = defined_until_data_is_read) -> Design:
    """Turn a checked experiment file into variants.

    Args:
        loaded: The experiment file.
        registry: Where entries are looked up.
        undefined: Tells why a configuration has no meaning; default: only contradictions between
            its fields are refused.

    Raises:
        HeadToHeadError: For an axis, value or exclusion that does not make sense, with its place,
            and for a baseline or an end of a path without a meaning.
    """
    blocks = _blocks(loaded)
    if any(block.kind == "path" for block in blocks):
        return _PathDesign(loaded, registry, undefined, blocks).design()
    return _AxesDesign(loaded, registry, undefined, blocks).design()


@dataclass(frozen=True)
class _Block:
    """One block of the file: its kind, what stands in it, and where."""

    kind: str
    content: Any
    location: SourceLocation


def _blocks(loaded: LoadedExperiment) -> list[_Block]:
    blocks = []
    for number, block in enumerate(loaded.file.design):
        location = loaded.location("design", number)
        given = [name for name in type(block).model_fields if getattr(block, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none of them"
            raise location.error(f"a block has one of product, one_at_a_time, zip or path, got {names}")
        blocks.append(_Block(given[0], getattr(block, given[0]), location.child(given[0])))
    return blocks


def _key(config: RunConfig, match: Match, registry: Registry) -> str:
    """Return what tells combinations apart; options say where data is, before it is read."""
    identity = canonical(config, "", registry)
    return json.dumps([identity, config.data.options, match], sort_keys=True)


@dataclass
class _Cell:
    """A combination of axis values, resolved."""

    config: RunConfig
    match: Match
    asked: dict[str, Scalar]


class _AxesDesign:
    """A design of axes: combinations of their values, laid over the baseline."""

    def __init__(
        self, loaded: LoadedExperiment, registry: Registry, undefined: Undefined, blocks: Sequence[_Block]
    ) -> None:
        self.loaded, self.registry = loaded, registry
        self.undefined, self.blocks = undefined, blocks
        self.recipe, self.start = self._start()
        asked: dict[str, Scalar] = {RECIPE_AXIS: self.recipe}
        self.baseline = _Cell(build_consistent_config(self.start), loaded.file.match, asked)
        self.axes: list[str] = []
        self.cells: dict[str, _Cell] = {self._key(self.baseline): self.baseline}
        self.products: list[tuple[tuple[str, ...], dict[tuple[int, ...], str]]] = []

    def design(self) -> Design:
        for block in self.blocks:
            self._block(block)
        refusals = Incompatibilities(self.loaded, self.registry, self.start, self.axes, self.undefined)
        self._check_baseline(refusals)
        labels = {key: self._labels(cell) for key, cell in self.cells.items()}
        slugs = _unique_slugs(labels)
        variants, excluded = [], []
        for key, cell in self.cells.items():
            name = slugs[key], title_of(labels[key]), labels[key]
            refusal = refusals.of(cell.config, cell.match)
            if refusal:
                slug, title, axes = name
                excluded.append(
                    ExcludedRecord(slug=slug, title=title, axes=axes, reason=refusal.reason, source=refusal.source)
                )
            else:
                variants.append(Variant(*name, cell.config, cell.match))
        baseline = slugs[self._key(self.baseline)]
        return Design(
            axes=tuple(self.axes),
            variants=tuple(variants),
            baseline=baseline,
            excluded=tuple(excluded),
            seeds=self.loaded.seeds,
            factorials=tuple(
                Factorial(axes, {cell: slugs[key] for cell, key in cells.items()}) for axes, cells in self.products
            ),
            notes=tuple(refusals.notes()),
            labels={slugs[key]: axes for key, axes in labels.items()},
            published=published_record(self.loaded, variants, baseline, refusals.conditions),
        )

    def _start(self) -> tuple[str | None, ConfigBuilder]:
        """Return the recipe beneath the baseline, if there is one, and the baseline."""
        for part in ("baseline", "base"):
            recipe = getattr(self.loaded.file, part).get("recipe")
            if recipe is not None:
                location = self.loaded.location(part, "recipe")
                return recipe_label(recipe, location), self._laid_over(recipe, location)
        return None, self._laid_over(None, self.loaded.location("base"))

    def _laid_over(self, recipe: Any, location: SourceLocation) -> ConfigBuilder:
        """Lay base, baseline, what stands with the recipe, and overrides over a recipe."""
        builder = ConfigBuilder(self.registry, self.loaded.location("base"))
        with_it: Mapping[str, Any] = {}
        if recipe is not None:
            name, with_it = recipe_parts(recipe, location)
            merge_recipe(builder, name, location)
        for part in ("base", "baseline"):
            written = getattr(self.loaded.file, part)
            fields = {key: value for key, value in written.items() if key != "recipe"}
            builder.merge(fields, self.loaded.location(part))
        builder.merge(with_it, location)
        _override(builder, self.loaded)
        return builder

    def _check_baseline(self, refusals: Incompatibilities) -> None:
        config, match = self.baseline.config, self.baseline.match
        refusals.keep(config, match, "the baseline, which every variant is compared with")
        refusal = refusals.of(config, match)
        if refusal:
            location = self.loaded.location("baseline" if self.loaded.file.baseline else "base")
            raise location.error(refusal.reason)

    def _block(self, block: _Block) -> None:
        values = block.content
        for axis, listed in values.items():
            check_axis(axis, listed, block.location.child(axis))
            if axis not in self.axes:
                self.axes.append(axis)
        indices = _combinations(block.kind, values, block.location)
        cells = {index: self._add(values, index, block.location) for index in indices}
        if block.kind == "product":
            full = {tuple(one for one in index if one is not None): key for index, key in cells.items()}
            self.products.append((tuple(values), full))

    def _add(self, values: Mapping[str, Sequence[Any]], index: tuple[int | None, ...], location: SourceLocation) -> str:
        cell = self._cell(
            {
                axis: (values[axis][number], location.child(axis, number))
                for axis, number in zip(values, index, strict=True)
                if number is not None
            }
        )
        key = self._key(cell)
        self.cells.setdefault(key, cell)
        return key

    def _cell(self, values: Mapping[str, tuple[Any, SourceLocation]]) -> _Cell:
        match = self.baseline.match
        builder = self._laid_over(*values[RECIPE_AXIS]) if RECIPE_AXIS in values else self.start.copy()
        for axis in sorted(values, key=assignment_order):
            value, location = values[axis]
            if axis == MATCH_AXIS:
                match = match_value(value, location)
            elif axis != RECIPE_AXIS:
                builder.assign(tuple(axis.split(".")), value, location)
        asked: dict[str, Scalar] = {
            axis: value for axis, (value, _) in values.items() if axis in FAMILIES and isinstance(value, str)
        }
        if RECIPE_AXIS in values:
            asked[RECIPE_AXIS] = recipe_label(*values[RECIPE_AXIS])
        return _Cell(build_config(builder), match, asked)

    def _key(self, cell: _Cell) -> str:
        return _key(cell.config, cell.match, self.registry)

    def _labels(self, cell: _Cell) -> dict[str, Scalar]:
        labels: dict[str, Scalar] = {}
        for axis in self.axes:
            if axis == MATCH_AXIS:
                labels[axis] = cell.match
            elif axis == RECIPE_AXIS:
                labels[axis] = cell.asked.get(axis, self.recipe)
            else:
                found = label_at(cell.config, tuple(axis.split(".")), self.registry)
                labels[axis] = cell.asked.get(axis, found)
        return labels


class _PathDesign:
    """A design of one path: the points that its walks pass."""

    def __init__(
        self, loaded: LoadedExperiment, registry: Registry, undefined: Undefined, blocks: Sequence[_Block]
    ) -> None:
        self.loaded, self.registry, self.undefined = loaded, registry, undefined
        self._check_alone(blocks)
        self.block: PathDesign = blocks[0].content
        self.location = blocks[0].location

    def design(self) -> Design:
        drafts = [self._end("from", self.block.start), self._end("to", self.block.end)]
        start, end = (build_consistent_config(builder) for builder in drafts)
        names = _end_name(self.block.start, "start"), _end_name(self.block.end, "end")
        choices = choices_between(
            start,
            end,
            lambda config: _key(config, self.match, self.registry),
            self.block.together,
            self.registry,
            self.location.child("together"),
        )
        if not choices:
            raise self.location.error(
                "the two ends do not differ once base is laid over both; leave what they should differ in out of base"
            )
        axes = tuple(choice.name for choice in choices)
        refusals = Incompatibilities(self.loaded, self.registry, drafts[0], axes, self.undefined)
        for side, config in (("from", start), ("to", end)):
            self._check_end(side, config, refusals)
        path = lay_path(
            (start, end),
            names,
            choices,
            lambda config: refusals.of(config, self.match),
            self.block.orders,
            self.block.orders_seed,
        )
        return self._design(path, axes, refusals.notes())

    @property
    def match(self) -> Match:
        return self.loaded.file.match

    def _design(self, path: Path, axes: tuple[str, ...], notes: Sequence[str]) -> Design:
        points = list(path.points.values())
        refuse_many_runs(
            self.loaded.path,
            self.loaded.file,
            sum(not one.refusal for one in points),
            len(self.loaded.seeds),
            self.loaded.max_runs,
        )
        return Design(
            axes=axes,
            variants=tuple(
                Variant(one.slug, one.title, one.axes, one.config, self.match) for one in points if not one.refusal
            ),
            baseline=path.ends[0].slug,
            excluded=tuple(
                ExcludedRecord(
                    slug=point.slug,
                    title=point.title,
                    axes=point.axes,
                    reason=point.refusal.reason,
                    source=point.refusal.source,
                )
                for point in points
                if point.refusal
            ),
            seeds=self.loaded.seeds,
            notes=(*notes, *path.notes()),
            path=path,
        )

    def _check_alone(self, blocks: Sequence[_Block]) -> None:
        if len(blocks) > 1:
            raise self.loaded.location("design").error(
                f"a path stands alone in its design, got {len(blocks)} blocks; give each question a file of its own"
            )
        if self.loaded.file.baseline:
            raise self.loaded.location("baseline").error(
                "a path is compared with its start; lay over both ends what stands here by moving it to base"
            )
        if self.loaded.file.published:
            raise self.loaded.location("published").error(
                "published claims speak of variants by their axis values, and a path has choices; "
                "give the claims a file with a product or one_at_a_time"
            )
        if "recipe" in self.loaded.file.base:
            raise self.loaded.location("base", "recipe").error(
                "the recipes of a path are its ends, and base is laid over both; leave it out"
            )

    def _end(self, side: str, written: str | Mapping[str, Any]) -> ConfigBuilder:
        """Lay base and overrides over an end; what base says holds for both ends."""
        location = self.location.child(side)
        builder = ConfigBuilder(self.registry, location)
        merge_base(builder, self._beneath(written, location), location)
        builder.merge(self.loaded.file.base, self.loaded.location("base"))
        _override(builder, self.loaded)
        return builder

    def _beneath(self, written: str | Mapping[str, Any], location: SourceLocation) -> Mapping[str, Any]:
        if not isinstance(written, str):
            return written
        family, _, name = written.partition("/")
        if family != "recipe" or not name:
            known = [f"recipe/{one}" for one in self.registry.entries["recipe"]]
            raise location.error(
                f"expected recipe/NAME or a mapping of fields, got {shown(written)}"
                f"{nearest(f'recipe/{written}', known)}"
            )
        try:
            self.registry.recipe(name)
        except HeadToHeadError as error:
            raise location.error(str(error)) from error
        return {"recipe": name}

    def _check_end(self, side: str, config: RunConfig, refusals: Incompatibilities) -> None:
        refusals.keep(config, self.match, "an end of the path")
        refusal = refusals.of(config, self.match)
        if refusal:
            raise self.location.child(side).error(refusal.reason)
        metric = self.loaded.file.metrics.primary
        if config.evaluate.decode == "none" and metric.rsplit("/", 1)[-1].startswith(TRANSLATED):
            raise self.loaded.location("metrics", "primary").error(
                f"'{metric}' needs translations, and the path's '{side}' has evaluate.decode: "
                "none; use test/token_accuracy, or set evaluate.decode in base"
            )


def _override(builder: ConfigBuilder, loaded: LoadedExperiment) -> None:
    """Lay ``--set`` over a draft."""
    for override in loaded.overrides:
        builder.assign(override.path, override.value, override.location)


def _end_name(written: str | Mapping[str, Any], otherwise: str) -> str:
    """Return what an end is called: its recipe, with a mark where more is laid over that."""
    if isinstance(written, str):
        return written.partition("/")[2]
    recipe = written.get("recipe")
    if recipe is None:
        return otherwise
    return f"{recipe}, changed" if len(written) > 1 else str(recipe)


def _combinations(
    kind: str, values: Mapping[str, Sequence[Any]], location: SourceLocation
) -> list[tuple[int | None, ...]]:
    """Return, per combination, the number of the value of each axis; None keeps the baseline's."""
    lengths = [len(one) for one in values.values()]
    if kind == "product":
        return list(itertools.product(*(range(length) for length in lengths)))
    if kind == "zip":
        if len(set(lengths)) > 1:
            counts = ", ".join(f"{axis} has {len(one)}" for axis, one in values.items())
            raise location.error(f"zip needs lists of equal length; {counts}")
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
