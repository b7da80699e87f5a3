"""Expand the design of an experiment into variants, exclusions and contrasts."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headtohead.config.builder import FAMILIES, ConfigBuilder, assignment_order, refuse_both
from headtohead.config.identity import run_identity
from headtohead.config.labels import Scalar, label_at, slug_of, title_of
from headtohead.config.loading import LoadedExperiment, refuse_many_runs
from headtohead.config.resolve import build_config, build_consistent_config, merge_base, merge_recipe
from headtohead.config.source_location import SourceLocation, shown
from headtohead.errors import HeadToHeadError, nearest
from headtohead.planning.axes import (
    DATA_AXIS,
    MATCH_AXIS,
    RECIPE_AXIS,
    Match,
    assign_data,
    check_axis,
    data_label,
    match_value,
    recipe_label,
    recipe_parts,
)
from headtohead.planning.between import END, START, changes_between, expand_between
from headtohead.planning.contrasts import Factorial, declared_contrasts, factor_contrasts, interaction_contrasts
from headtohead.planning.exclusions import FindIncompatibility, Incompatibilities, no_incompatibility
from headtohead.planning.variants import Variant
from headtohead.plugins.registry import Registry
from headtohead.schema.experiment_file import BetweenDesign
from headtohead.schema.run_config import RunConfig
from headtohead.storage.contrasts import ChangeContrast, ContrastRecord, DeclaredContrast, VariantContrast
from headtohead.storage.experiment import ExcludedRecord

TRANSLATED = ("exact_match", "bleu", "chrf")
"""Metrics of translations, undefined where ``evaluate.decode`` is none."""


@dataclass(frozen=True)
class Design:
    """The expanded design: variants, exclusions, seeds and the structure that contrasts are built from.

    ``labels`` holds the axis values by slug, including those of excluded combinations.
    """

    axes: tuple[str, ...]
    variants: tuple[Variant, ...]
    baseline: str
    excluded: tuple[ExcludedRecord, ...]
    seeds: tuple[int, ...]
    factorials: tuple[Factorial, ...] = ()
    notes: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    changes: tuple[ChangeContrast, ...] = ()
    declared: tuple[DeclaredContrast, ...] = ()

    def variant(self, slug: str) -> Variant:
        """Return the variant with this slug."""
        return next(variant for variant in self.variants if variant.slug == slug)

    def contrasts(self) -> list[ContrastRecord]:
        """Return the contrasts to test: every variant against the baseline, axis values, interactions, declared ones.

        Between two configurations, these are their difference, then every change added and taken.
        """
        titles = {variant.slug: variant.title for variant in self.variants}
        if self.changes:
            name = f"{titles[END]} − {titles[START]}"
            return [VariantContrast(name=name, variant=END, baseline=START), *self.changes]
        plain = [
            VariantContrast(
                name=f"{titles[slug]} − {'baseline' if other == self.baseline else titles[other]}",
                variant=slug,
                baseline=other,
            )
            for slug in titles
            if (other := self._baseline_of(slug)) != slug
        ]
        arguments = self.factorials, self.labels, self.baseline, titles
        return [*plain, *factor_contrasts(*arguments), *interaction_contrasts(*arguments), *self.declared]

    def _baseline_of(self, slug: str) -> str:
        """Return the variant that a variant is compared with: the baseline.

        With the axis ``data``, it is the variant with the variant's data and the baseline's other values, if it runs.
        """
        data = self.labels.get(slug, {}).get(DATA_AXIS)
        if data is None:
            return self.baseline
        wanted = {**self.labels[self.baseline], DATA_AXIS: data}
        return next((variant.slug for variant in self.variants if variant.axes == wanted), self.baseline)


def expand(
    loaded: LoadedExperiment, registry: Registry, find_incompatibility: FindIncompatibility = no_incompatibility
) -> Design:
    """Turn a checked experiment file into variants.

    Args:
        loaded: The experiment file.
        registry: Provides the plugin entries.
        find_incompatibility: Returns why a configuration without contradictions cannot run, or None; default:
            only contradictions between fields are found.

    Raises:
        HeadToHeadError: For an invalid axis, value or exclusion, with its location in the file, and for a baseline
            or one of the configurations of ``between`` that cannot run.
    """
    blocks = _blocks(loaded)
    kind = _BetweenDesign if any(block.kind == "between" for block in blocks) else _AxesDesign
    design = kind(loaded, registry, find_incompatibility, blocks).design()
    return _without_translations(design, loaded)


def _without_translations(design: Design, loaded: LoadedExperiment) -> Design:
    """Return the design with a note on variants without a score because they do not translate.

    Raises:
        HeadToHeadError: If the baseline or, with ``between``, any variant does not translate.
    """
    metric = loaded.file.metrics.primary
    if not metric.rsplit("/", 1)[-1].startswith(TRANSLATED):
        return design
    silent = [variant.slug for variant in design.variants if variant.config.evaluate.decode == "none"]
    if silent and (design.changes or design.baseline in silent):
        raise loaded.location("metrics", "primary").error(
            f"'{metric}' requires translations, but variant '{silent[0]}' has evaluate.decode: none; use "
            "test/token_accuracy, or another evaluate.decode"
        )
    notes = [f"no {metric} for {slug}, which has evaluate.decode: none" for slug in silent]
    return replace(design, notes=(*design.notes, *notes))


@dataclass(frozen=True)
class _Block:
    """A block of the file: its kind, its content and its location."""

    kind: str
    content: Any
    location: SourceLocation


def _blocks(loaded: LoadedExperiment) -> list[_Block]:
    blocks = []
    for number, block in enumerate(loaded.file.design):
        location = loaded.location("design", number)
        kinds = [name for name in type(block).model_fields if getattr(block, name) is not None]
        if len(kinds) != 1:
            names = " and ".join(kinds) or "none of them"
            raise location.error(f"a block requires one of product, one_at_a_time, zip or between; got {names}")
        blocks.append(_Block(kinds[0], getattr(block, kinds[0]), location.child(kinds[0])))
    return blocks


def _key(config: RunConfig, match: Match, registry: Registry) -> str:
    """Return a text that is equal for equal combinations.

    The data section stands for the data hash, which is unknown before the data is prepared.
    """
    identity = run_identity(config, "", registry)
    return json.dumps([identity, config.data.model_dump(mode="json"), match], sort_keys=True)


@dataclass
class _Cell:
    """A resolved combination of axis values; ``labels`` are the axis values as the user wrote them."""

    config: RunConfig
    match: Match
    labels: dict[str, Scalar]


class _AxesDesign:
    """Expands blocks of axes: each combination of values overrides the baseline."""

    def __init__(
        self,
        loaded: LoadedExperiment,
        registry: Registry,
        find_incompatibility: FindIncompatibility,
        blocks: Sequence[_Block],
    ) -> None:
        self.loaded, self.registry = loaded, registry
        self.find_incompatibility, self.blocks = find_incompatibility, blocks
        self.recipe, self.start = self._start()
        self.baseline = _Cell(build_consistent_config(self.start), loaded.file.match, {RECIPE_AXIS: self.recipe})
        self.axes: list[str] = []
        self.cells: dict[str, _Cell] = {self._key(self.baseline): self.baseline}
        self.products: list[tuple[tuple[str, ...], dict[tuple[int, ...], str]]] = []

    def design(self) -> Design:
        for block in self.blocks:
            self._block(block)
        incompatibilities = Incompatibilities(
            self.loaded, self.registry, self.start, self.axes, self.find_incompatibility
        )
        self._check_baseline(incompatibilities)
        labels = {key: self._labels(cell) for key, cell in self.cells.items()}
        slugs = _unique_slugs(labels)
        variants, excluded = [], []
        for key, cell in self.cells.items():
            name = slugs[key], title_of(labels[key]), labels[key]
            incompatibility = incompatibilities.find(cell.config, cell.match)
            if incompatibility:
                slug, title, axes = name
                excluded.append(
                    ExcludedRecord(
                        slug=slug, title=title, axes=axes, reason=incompatibility.reason, source=incompatibility.source
                    )
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
            notes=tuple(incompatibilities.notes()),
            labels={slugs[key]: axes for key, axes in labels.items()},
            declared=declared_contrasts(self.loaded, variants, baseline, incompatibilities.conditions),
        )

    def _start(self) -> tuple[str | None, ConfigBuilder]:
        """Return the baseline's recipe, if it has one, and the baseline."""
        for section in ("baseline", "base"):
            recipe = getattr(self.loaded.file, section).get("recipe")
            if recipe is not None:
                location = self.loaded.location(section, "recipe")
                return recipe_label(recipe, location), self._merged_over(recipe, location)
        return None, self._merged_over(None, self.loaded.location("base"))

    def _merged_over(self, recipe: Any, location: SourceLocation) -> ConfigBuilder:
        """Merge base, baseline, the fields beside the recipe's name and ``--set`` over a recipe."""
        builder = ConfigBuilder(self.registry, self.loaded.location("base"))
        recipe_fields: Mapping[str, Any] = {}
        if recipe is not None:
            name, recipe_fields = recipe_parts(recipe, location)
            merge_recipe(builder, name, location)
        for section in ("base", "baseline"):
            fields = {key: value for key, value in getattr(self.loaded.file, section).items() if key != "recipe"}
            builder.merge(fields, self.loaded.location(section))
        builder.merge(recipe_fields, location)
        _override(builder, self.loaded)
        return builder

    def _check_baseline(self, incompatibilities: Incompatibilities) -> None:
        config, match = self.baseline.config, self.baseline.match
        incompatibilities.require(config, match, "the baseline, which every variant is compared with")
        incompatibility = incompatibilities.find(config, match)
        if incompatibility:
            location = self.loaded.location("baseline" if self.loaded.file.baseline else "base")
            raise location.error(incompatibility.reason)

    def _block(self, block: _Block) -> None:
        values = block.content
        if block.kind != "one_at_a_time":
            refuse_both(values, "train.", block.location)
        for axis, listed in values.items():
            check_axis(axis, listed, block.location.child(axis))
            if axis not in self.axes:
                self.axes.append(axis)
            for number, value in enumerate(listed):
                if block.kind != "zip" and value in listed[:number]:
                    raise block.location.child(axis, number).error(f"axis '{axis}' lists this value twice; remove one")
        indices = _combinations(block.kind, values, block.location)
        cells = {index: self._add(values, index, block.location) for index in indices}
        if block.kind == "product":
            full = {tuple(position for position in index if position is not None): key for index, key in cells.items()}
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
        known = self.cells.setdefault(key, cell)
        for axis, label in cell.labels.items():  # the baseline was added without the labels of the axes
            if known.labels.get(axis) is None:
                known.labels[axis] = label
        return key

    def _cell(self, values: Mapping[str, tuple[Any, SourceLocation]]) -> _Cell:
        match = self.baseline.match
        builder = self._merged_over(*values[RECIPE_AXIS]) if RECIPE_AXIS in values else self.start.copy()
        for axis in sorted(values, key=assignment_order):
            value, location = values[axis]
            if axis == MATCH_AXIS:
                match = match_value(value, location)
            elif axis == DATA_AXIS:
                assign_data(builder, value, location)
            elif axis != RECIPE_AXIS:
                builder.assign(tuple(axis.split(".")), value, location)
        labels: dict[str, Scalar] = {
            axis: value for axis, (value, _) in values.items() if axis in FAMILIES and isinstance(value, str)
        }
        if RECIPE_AXIS in values:
            labels[RECIPE_AXIS] = recipe_label(*values[RECIPE_AXIS])
        if DATA_AXIS in values:
            labels[DATA_AXIS] = data_label(*values[DATA_AXIS])
        return _Cell(build_config(builder), match, labels)

    def _key(self, cell: _Cell) -> str:
        return _key(cell.config, cell.match, self.registry)

    def _labels(self, cell: _Cell) -> dict[str, Scalar]:
        labels: dict[str, Scalar] = {}
        for axis in self.axes:
            if axis == MATCH_AXIS:
                labels[axis] = cell.match
            elif axis == RECIPE_AXIS:
                labels[axis] = cell.labels.get(axis, self.recipe)
            elif axis == DATA_AXIS:
                labels[axis] = cell.labels.get(axis) or self._data_label(cell.config)
            else:
                label = label_at(cell.config, tuple(axis.split(".")), self.registry)
                labels[axis] = cell.labels.get(axis, label)
        return labels

    def _data_label(self, config: RunConfig) -> str:
        """Return the label of data that no value of the axis ``data`` gives."""
        same, label = config.data == self.baseline.config.data, self.baseline.labels.get(DATA_AXIS)
        return str(label) if same and label else config.data.dataset


class _BetweenDesign:
    """Expands a block ``between``: both configurations, every change added to the first and taken from the second."""

    def __init__(
        self,
        loaded: LoadedExperiment,
        registry: Registry,
        find_incompatibility: FindIncompatibility,
        blocks: Sequence[_Block],
    ) -> None:
        self.loaded, self.registry, self.find_incompatibility = loaded, registry, find_incompatibility
        self._check_only_block(blocks)
        self.block: BetweenDesign = blocks[0].content
        self.location = blocks[0].location

    def design(self) -> Design:
        builders = [self._end("from", self.block.start), self._end("to", self.block.end)]
        start, end = (build_consistent_config(builder) for builder in builders)
        if start.init_from != end.init_from:
            raise self.location.error("init_from cannot differ between the two configurations; move it to base")
        match = self.loaded.file.match
        changes = changes_between(
            start,
            end,
            lambda config: _key(config, match, self.registry),
            self.block.groups,
            self.registry,
            self.location.child("groups"),
        )
        if not changes:
            raise self.location.error(
                "both configurations are the same after base is merged over them; remove the fields that should differ "
                "from base"
            )
        axes = tuple(change.name for change in changes)
        incompatibilities = Incompatibilities(self.loaded, self.registry, builders[0], axes, self.find_incompatibility)
        for side, config in (("from", start), ("to", end)):
            self._check_end(side, config, incompatibilities)
        points, contrasts = expand_between((start, end), self._names(), changes, match)
        variants, excluded = [], []
        for point in points:
            incompatibility = incompatibilities.find(point.config, match)
            if incompatibility:
                excluded.append(
                    ExcludedRecord(
                        slug=point.slug,
                        title=point.title,
                        axes=point.axes,
                        reason=incompatibility.reason,
                        source=incompatibility.source,
                    )
                )
            else:
                variants.append(point)
        refuse_many_runs(
            self.loaded.path, self.loaded.file, len(variants), len(self.loaded.seeds), self.loaded.max_runs
        )
        slugs = {variant.slug for variant in variants}
        return Design(
            axes=axes,
            variants=tuple(variants),
            baseline=START,
            excluded=tuple(excluded),
            seeds=self.loaded.seeds,
            notes=tuple(incompatibilities.notes()),
            changes=tuple(contrast for contrast in contrasts if {contrast.variant, contrast.against} <= slugs),
        )

    def _names(self) -> tuple[str, str]:
        """Return the display names of both configurations."""
        start, end = _end_name(self.block.start, "start"), _end_name(self.block.end, "end")
        return (start, end) if start != end else (f"{start} (from)", f"{end} (to)")

    def _check_only_block(self, blocks: Sequence[_Block]) -> None:
        if len(blocks) > 1:
            raise self.loaded.location("design").error(
                f"between must be the only block of a design, got {len(blocks)} blocks; use one file per question"
            )
        if self.loaded.file.baseline:
            raise self.loaded.location("baseline").error(
                "the baseline of between is its first configuration; move these fields to base"
            )
        if self.loaded.file.contrasts:
            raise self.loaded.location("contrasts").error(
                "contrasts name variants by axis values, and between has no axes; move them to a file with product or "
                "one_at_a_time"
            )
        if "recipe" in self.loaded.file.base:
            raise self.loaded.location("base", "recipe").error(
                "the recipes of between are from and to, and base is merged over both; remove this recipe"
            )

    def _end(self, side: str, written: str | Mapping[str, Any]) -> ConfigBuilder:
        """Merge base and ``--set`` over a configuration; both get the same fields of base."""
        location = self.location.child(side)
        builder = ConfigBuilder(self.registry, location)
        merge_base(builder, self._end_fields(written, location), location)
        builder.merge(self.loaded.file.base, self.loaded.location("base"))
        _override(builder, self.loaded)
        return builder

    def _end_fields(self, written: str | Mapping[str, Any], location: SourceLocation) -> Mapping[str, Any]:
        if not isinstance(written, str):
            return written
        family, _, name = written.partition("/")
        if family != "recipe" or not name:
            known = [f"recipe/{recipe}" for recipe in self.registry.entries["recipe"]]
            raise location.error(
                f"expected recipe/NAME or a mapping of fields, got {shown(written)}"
                f"{nearest(f'recipe/{written}', known)}"
            )
        try:
            self.registry.recipe(name)
        except HeadToHeadError as error:
            raise location.error(str(error)) from error
        return {"recipe": name}

    def _check_end(self, side: str, config: RunConfig, incompatibilities: Incompatibilities) -> None:
        incompatibilities.require(config, self.loaded.file.match, f"the configuration '{side}'")
        incompatibility = incompatibilities.find(config, self.loaded.file.match)
        if incompatibility:
            raise self.location.child(side).error(incompatibility.reason)


def _override(builder: ConfigBuilder, loaded: LoadedExperiment) -> None:
    """Assign the values of ``--set``."""
    for override in loaded.overrides:
        builder.assign(override.path, override.value, override.location)


def _end_name(written: str | Mapping[str, Any], otherwise: str) -> str:
    """Return the display name of a configuration: its recipe, and ", changed" if it also sets fields."""
    if isinstance(written, str):
        return written.partition("/")[2]
    recipe = written.get("recipe")
    if recipe is None:
        return otherwise
    return f"{recipe}, changed" if len(written) > 1 else str(recipe)


def _combinations(
    kind: str, values: Mapping[str, Sequence[Any]], location: SourceLocation
) -> list[tuple[int | None, ...]]:
    """Return, per combination, the index of each axis's value; None keeps the baseline's value."""
    lengths = [len(listed) for listed in values.values()]
    if kind == "product":
        return list(itertools.product(*(range(length) for length in lengths)))
    if kind == "zip":
        if len(set(lengths)) > 1:
            counts = ", ".join(f"{axis} has {len(listed)}" for axis, listed in values.items())
            raise location.error(f"zip requires lists of equal length; {counts}")
        return [(index,) * len(lengths) for index in range(lengths[0] if lengths else 0)]
    return [
        tuple(value if position == axis else None for position in range(len(lengths)))
        for axis, length in enumerate(lengths)
        for value in range(length)
    ]


def _unique_slugs(labels: Mapping[str, Mapping[str, Scalar]]) -> dict[str, str]:
    """Return a unique slug per combination: equal slugs get a hash of the configuration."""
    plain = {key: slug_of(axes) for key, axes in labels.items()}
    counts = Counter(plain.values())
    return {
        key: slug if counts[slug] == 1 else f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
        for key, slug in plain.items()
    }
