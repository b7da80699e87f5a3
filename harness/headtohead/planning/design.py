"""Expand the design of an experiment into variants, exclusions and contrasts."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headtohead.config.builder import (
    ConfigBuilder,
    assignment_order,
    named_parts,
    refuse_both,
)
from headtohead.config.clauses import as_noun, change_clause, within
from headtohead.config.labels import Scalar, label_at, scalar, slug_of, text
from headtohead.config.loading import LoadedExperiment, refuse_many_runs
from headtohead.config.phrases import axis_name, named_phrase
from headtohead.config.source_location import SourceLocation, shown
from headtohead.data.metrics import find_metric
from headtohead.planning.axis_phrases import GivenNames, value_phrase
from headtohead.planning.between import (
    END,
    START,
    changes_between,
    expand_between,
    names_of_changes,
)
from headtohead.planning.contrasts import (
    Axis,
    Factorial,
    declared_contrasts,
    factor_contrasts,
    interaction_contrasts,
)
from headtohead.planning.datasets import PreparedDataSets
from headtohead.planning.exclusions import Exclusions
from headtohead.planning.metrics import reported_metrics
from headtohead.planning.naming import Combination, clause_of, titles_of
from headtohead.planning.variants import (
    DATA_AXIS,
    MATCH_AXIS,
    RECIPE_AXIS,
    SIZE_AXIS,
    Match,
    Variant,
    check_axis,
    check_match,
    comparison_group,
    label_of_data,
    label_of_recipe,
    variant_key,
)
from headtohead.plugins.families import COMPONENTS
from headtohead.schema.experiment_file import ZIP, BetweenDesign, DesignBlock
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.storage.contrasts import ContrastRecord
from headtohead.storage.experiment import ExcludedRecord


@dataclass(frozen=True)
class Design:
    """The expanded design: variants, exclusions, seeds and the structure that contrasts are built from.

    ``start`` builds the baseline's configuration, ``labels`` holds the axis values by slug, including those of
    excluded combinations, and ``further_seeds`` are seeds that only some variants have besides ``seeds``, by slug.
    ``axis_names`` has what people call the axes. With ``between``, ``difference_name`` is the name of the contrast of
    the two configurations, and ``changes`` are the contrasts of single changes; without it, both are empty.
    """

    axes: tuple[str, ...]
    variants: tuple[Variant, ...]
    baseline: str
    excluded: tuple[ExcludedRecord, ...]
    seeds: tuple[int, ...]
    start: ConfigBuilder
    factorials: tuple[Factorial, ...] = ()
    notes: tuple[str, ...] = ()
    labels: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    axis_names: Mapping[str, str] = field(default_factory=dict)
    difference_name: str = ""
    changes: tuple[ContrastRecord, ...] = ()
    declared: tuple[ContrastRecord, ...] = ()
    further_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_between(self) -> bool:
        """Whether the design compares two configurations and the changes between them (``between``)."""
        return bool(self.difference_name)

    def seeds_of(self, slug: str) -> tuple[int, ...]:
        """Return the seeds of a variant."""
        return (*self.seeds, *self.further_seeds.get(slug, ()))

    def variant(self, slug: str) -> Variant:
        """Return the variant with this slug.

        Raises:
            KeyError: If there is none, or it is excluded.
        """
        for variant in self.variants:
            if variant.slug == slug:
                return variant
        raise KeyError(slug)

    def baseline_of(self, slug: str) -> str | None:
        """Return the baseline of a variant, which has its values of the axes data and size; None if it is excluded."""
        if self.is_between:
            return self.baseline
        axes = {**self.labels[self.baseline], **comparison_group(self.labels[slug])}
        for variant in self.variants:
            if variant.axes == axes:
                return variant.slug
        return None

    def contrasts(self) -> list[ContrastRecord]:
        """Return the contrasts to test: every variant against its baseline, axis values, interactions, declared ones.

        A baseline, and a variant whose baseline is excluded, have no contrast with a baseline. Between two
        configurations, the contrasts are their difference, then those of single changes that are not excluded.
        """
        if self.is_between:
            total = ContrastRecord.of_two(self.difference_name, "variant", END, START)
            return [total, *self.changes]
        by_slug = {variant.slug: variant for variant in self.variants}
        averages = factor_contrasts(self.factorials, by_slug)
        names_of_averages = {contrast.name for contrast in averages}
        plain = []
        for slug, variant in by_slug.items():
            baseline = self.baseline_of(slug)
            if baseline is None or baseline == slug:
                continue
            name = self._change_name(variant, by_slug[baseline], names_of_averages)
            plain.append(ContrastRecord.of_two(name, "variant", slug, baseline))
        return [
            *plain,
            *averages,
            *interaction_contrasts(self.factorials, by_slug),
            *self.declared,
        ]

    def _change_name(
        self, variant: Variant, baseline: Variant, names_of_averages: Collection[str]
    ) -> str:
        """Return the clause for the change from a baseline, followed by the values that distinguish the contrast.

        These are the value of the axis data or size, if another variant has another value of this axis; and, if an
        average over settings has the same clause, the values of the other axes that do not change.
        """
        clause = clause_of(variant.combination, baseline.combination) or variant.title
        group = comparison_group(variant.axes)
        phrases = []
        for axis, value in variant.axes.items():
            if axis in group:
                is_shown = any(other.axes.get(axis) != value for other in self.variants)
            else:
                is_shown = clause in names_of_averages and value == baseline.axes[axis]
            if is_shown:
                phrases.append(variant.phrases[axis])
        return within(clause, ", ".join(dict.fromkeys(phrases)))


class Block(NamedTuple):
    """A block of the file's design: its kind, such as ``product``, its content, and its location."""

    kind: str
    content: Any
    location: SourceLocation


def expand(loaded: LoadedExperiment, datasets: PreparedDataSets | None = None) -> Design:
    """Return the design of a validated experiment file: its variants, exclusions and contrasts.

    Args:
        loaded: The experiment file.
        datasets: The data of the experiment, which exclude further combinations; default: only contradictions
            between fields, and the file's ``exclude``, exclude combinations.

    Raises:
        HeadToHeadError: With its location in the file: for a block without exactly one kind; for an invalid axis,
            value, exclusion or declared contrast; for a block or section beside ``between`` that it excludes; for a
            baseline or a configuration of ``between`` that cannot run; for ``between`` with equal configurations or
            too many runs; for an unknown metric; and if the primary metric requires translations that the baseline, or
            with ``between`` any variant, does not have; for an axis or a value in ``names`` that the design lacks.
            Also if the data cannot be read, or a plugin is faulty.
    """
    blocks = []
    for number, content in enumerate(loaded.file.design):
        blocks.append(_block(content, loaded.location("design", number)))
    if any(block.kind == "between" for block in blocks):
        _refuse_beside_between(loaded)
        (block,) = blocks
        design = _expand_between(loaded, datasets, block.content, block.location)
    else:
        axes = Axes(loaded)
        for block in blocks:
            axes.add_block(*block)
        design = axes.design(datasets)
    return _with_translation_notes(design, loaded)


def _block(content: DesignBlock, location: SourceLocation) -> Block:
    """Return a block of the design with its kind; the other three fields of the block are None.

    Raises:
        HeadToHeadError: If none or several of ``product``, ``one_at_a_time``, ``zip`` and ``between`` are given.
    """
    kinds = [name for name in type(content).model_fields if getattr(content, name) is not None]
    if len(kinds) != 1:
        names = " and ".join(kinds) or "none of them"
        raise location.error(
            f"a block requires one of product, one_at_a_time, zip or between; got {names}"
        )
    return Block(kinds[0], getattr(content, kinds[0]), location.child(kinds[0]))


def _with_translation_notes(design: Design, loaded: LoadedExperiment) -> Design:
    """Return the design with a note on each variant that lacks the primary metric because it does not translate.

    The design is returned unchanged if the primary metric does not need translations.

    Raises:
        HeadToHeadError: If the primary metric needs translations, and the baseline or, with ``between``, any variant
            has ``evaluate.decode: none``; or if a metric of the file is invalid.
    """
    primary = reported_metrics(loaded, design.variant(design.baseline).config).primary
    metric = find_metric(primary)
    requires_translations = metric is not None and metric.per_example is not None
    if not requires_translations:
        return design
    without_score = [
        variant.slug for variant in design.variants if variant.config.evaluate.decode == "none"
    ]
    if without_score and (design.is_between or design.baseline in without_score):
        raise loaded.location("metrics", "primary").error(
            f"'{primary}' requires translations, but variant '{without_score[0]}' has evaluate.decode: none; use "
            "test/token_accuracy, or another evaluate.decode"
        )
    notes = [f"no {primary} for {slug}, which has evaluate.decode: none" for slug in without_score]
    return replace(design, notes=(*design.notes, *notes))


class Written(NamedTuple):
    """A value as in the file, with its location."""

    value: Any
    location: SourceLocation


Values = Mapping[str, Written]
"""The value of each axis of a combination."""


@dataclass
class _Cell:
    """A resolved combination of axis values, and these values as written."""

    config: RunConfig
    match: Match
    written: Values


def _fields_without_effect(config: RunConfig, equal: RunConfig) -> str:
    """Return the note on the fields of ``train`` in which two combinations differ whose results are equal."""
    fields = []
    for name in type(config.train).model_fields:
        if getattr(config.train, name) != getattr(equal.train, name):
            label = label_at(config, ("train", name))
            fields.append(f"train.{name} {text(label)}")
    return f"{', '.join(fields)} changes nothing: another combination has the same effect"


@dataclass(frozen=True)
class Product:
    """A product block: its axes, and the key of each combination by the indices of its values."""

    axes: tuple[Axis, ...]
    keys: Mapping[tuple[int, ...], str]


def sized_fields(loaded: LoadedExperiment) -> Collection[str]:
    """Return the fields that every entry of ``sizes`` sets; empty without ``sizes``."""
    sizes = loaded.file.sizes
    return sizes[0].keys() if sizes else ()


def located_values(axes: Any, location: SourceLocation, sized: Collection[str]) -> list[Values]:
    """Return the values of an axis, or of axes that change together: one mapping for each index of their lists.

    The values are not validated here, but when a combination is built.

    Args:
        axes: The list of values of each axis, as written in the file.
        location: Location of ``axes`` in the file.
        sized: The fields that ``sizes`` set.

    Raises:
        HeadToHeadError: If ``axes`` is no mapping or empty; if an axis is unknown or given twice, its values are no
            list or an empty one, or ``sizes`` set its field; if the lists have different lengths; or if two indices
            have equal values of all axes.
    """
    _check_axes(axes, location, sized)
    lengths = {axis: len(values) for axis, values in axes.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{axis} has {length}" for axis, length in lengths.items())
        raise location.error(f"zip requires lists of equal length; {counts}")
    rows: list[dict[str, Any]] = []
    located_rows: list[Values] = []
    for number, values in enumerate(zip(*axes.values(), strict=True)):
        row = dict(zip(axes, values, strict=True))
        if row in rows:
            first_axis = next(iter(axes))
            raise location.child(first_axis, number).error(
                f"axis '{', '.join(axes)}' lists this value twice; remove one"
            )
        rows.append(row)
        located_row = {}
        for axis, value in row.items():
            located_row[axis] = Written(value, location.child(axis, number))
        located_rows.append(located_row)
    return located_rows


def _check_axes(axes: Any, location: SourceLocation, sized: Collection[str]) -> None:
    """Check axes, but not the values in their lists.

    Raises:
        HeadToHeadError: If ``axes`` is no mapping or empty, an axis is unknown or given twice, its values are no list
            or an empty list, or ``sizes`` set its field.
    """
    if not isinstance(axes, Mapping) or not axes:
        raise location.error(f"expected a mapping of axes with lists of values, got {shown(axes)}")
    refuse_both(axes, location)
    for axis, values in axes.items():
        check_axis(axis, values, location.child(axis))
        if axis in sized:
            raise location.child(axis).error(
                "sizes set this field already; remove it from the design"
            )


class Axes:
    """Expands blocks of axes: each combination of values overrides the baseline.

    `add_block` adds the combinations of each block, then `design` returns the design, once. The baseline is the first
    combination, and each entry of ``sizes`` one more.

    Args:
        loaded: The experiment file.

    Raises:
        HeadToHeadError: With the location in the file, if the recipe, ``sizes`` or a field of the baseline is invalid,
            or fields of the baseline contradict each other.
    """

    def __init__(self, loaded: LoadedExperiment) -> None:
        self.loaded = loaded
        self.recipe = self._recipe()
        self.start = self._merged_over(self.recipe)
        self.sizes = self._sizes()
        self._assign_sizes()
        self.baseline = _Cell(self.start.build_consistent(), loaded.file.match, dict(self.sizes[0]))
        self.axes: list[str] = []
        self.notes: list[str] = []
        baseline_key = variant_key(self.baseline.config, self.baseline.match)
        self.cells: dict[str, _Cell] = {baseline_key: self.baseline}
        self.products: list[Product] = []
        for size in self.sizes[1:]:
            self._add(size)

    def _recipe(self) -> Written | None:
        """Return the recipe of the baseline, or that of base; None without a recipe."""
        for section in ("baseline", "base"):
            content = getattr(self.loaded.file, section)
            if "recipe" in content:
                return Written(content["recipe"], self.loaded.location(section, "recipe"))
        return None

    def _sizes(self) -> list[Values]:
        """Return the entries of ``sizes`` as values of an axis; without them, one entry without values."""
        if not self.loaded.file.sizes:
            return [{}]
        sizes: list[Values] = []
        for number, size in enumerate(self.loaded.file.sizes):
            sizes.append({SIZE_AXIS: Written(size, self.loaded.location("sizes", number))})
        return sizes

    def design(self, datasets: PreparedDataSets | None) -> Design:
        """Return the design of the blocks that were added. Call it once: it adds the axis ``size`` to ``axes``.

        Args:
            datasets: The data, which may exclude combinations; None checks contradictions between fields only.

        Raises:
            HeadToHeadError: If the baseline is excluded or cannot run, an axis is a field of a role that no model has,
                ``names`` has an axis or a value that the design lacks, an exclusion or a declared contrast is invalid,
                the data cannot be read, or a plugin is faulty.
        """
        if self.loaded.file.sizes:
            self.axes.append(SIZE_AXIS)
        self._refuse_absent_roles()
        combinations = self._combinations()
        baseline = next(iter(combinations.values())).slug
        location = self.loaded.location("baseline" if self.loaded.file.baseline else "base")
        required = {baseline: ("the baseline, which every variant is compared with", location)}
        exclusions = Exclusions(self.loaded, self.start, self.axes, datasets)
        variants, excluded = exclusions.split(combinations.values(), required)
        # Those of excluded combinations too.
        labels = {variant.slug: variant.axes for variant in combinations.values()}
        phrases = {variant.slug: variant.phrases for variant in combinations.values()}
        factorials = []
        for product in self.products:
            slugs = {indices: combinations[key].slug for indices, key in product.keys.items()}
            factorials.append(Factorial(product.axes, slugs, labels, baseline, phrases))
        return Design(
            axes=tuple(self.axes),
            variants=tuple(variants),
            baseline=baseline,
            excluded=tuple(excluded),
            seeds=self.loaded.seeds,
            start=self.start,
            factorials=tuple(factorials),
            notes=(*self.notes, *exclusions.notes()),
            labels=labels,
            axis_names={axis: axis_name(axis.split(".")) for axis in self.axes},
            declared=declared_contrasts(
                self.loaded, variants, excluded, baseline, exclusions.condition
            ),
        )

    def _combinations(self) -> dict[str, Variant]:
        """Return all combinations as variants by key, the baseline first, with their slugs, titles and phrases.

        Raises:
            HeadToHeadError: If ``names`` of the file has an axis or a value that the design lacks.
        """
        labels = {}
        for key, cell in self.cells.items():
            labels[key] = {axis: self._label(axis, cell) for axis in self.axes}
        slugs = _unique_slugs(labels)
        phrases = self._phrases(labels)
        named = [Combination(labels[key], phrases[key]) for key in self.cells]
        titles = titles_of(named, (DATA_AXIS, SIZE_AXIS))
        combinations = {}
        for (key, cell), title in zip(self.cells.items(), titles, strict=True):
            combinations[key] = Variant(
                slug=slugs[key],
                title=title,
                axes=labels[key],
                config=cell.config,
                match=cell.match,
                phrases=phrases[key],
            )
        return combinations

    def _refuse_absent_roles(self) -> None:
        """Raise a `HeadToHeadError` if an axis is a field of a role that no combination's model has.

        These are paths such as ``positional.encoder`` and ``model.encoder_layers`` in a decoder-only design.
        """
        absent = set(ROLES)
        for cell in self.cells.values():
            absent -= set(cell.config.roles)
        names = absent | {f"{role}_layers" for role in absent}
        for axis in self.axes:
            _, _, field = axis.partition(".")
            if field.split(".")[0] in names:
                first = next(cell for cell in self.cells.values() if axis in cell.written)
                raise first.written[axis].location.error(
                    "a decoder-only model has neither encoder nor cross-attention; remove this axis"
                )

    def _merged_over(self, recipe: Written | None) -> ConfigBuilder:
        """Return a builder with the merged values of the recipe, base, baseline, the recipe's fields and ``--set``.

        Later ones override earlier ones. ``recipe`` is its name, or a mapping of ``name`` and fields; None has none.

        Raises:
            HeadToHeadError: If a name or a field is unknown, a field is given twice, or a component or a section has a
                value of a wrong kind.
        """
        builder = ConfigBuilder(self.loaded.location("base"))
        recipe_fields: Mapping[str, Any] = {}
        if recipe is not None:
            name, recipe_fields = named_parts(*recipe, "name")
            builder.merge_recipe(name, recipe.location)
        for section in ("base", "baseline"):
            fields = dict(getattr(self.loaded.file, section))
            fields.pop("recipe", None)
            builder.merge(fields, self.loaded.location(section))
        if recipe is not None:
            builder.merge(recipe_fields, recipe.location)
        for override in self.loaded.overrides:
            builder.assign(override.path, override.value, override.location)
        return builder

    def add_block(self, kind: str, content: Mapping[str, Any], location: SourceLocation) -> None:
        """Add the combinations of a block, each with every size; the axes of a ``zip`` inside it change together.

        ``product`` adds each combination of the values of all axes, ``one_at_a_time`` the baseline with each single
        value.

        Args:
            kind: ``product``, ``one_at_a_time`` or ``zip``; a ``zip`` is a product with one axis.
            content: The values of each axis.
            location: Location of the content in the file.

        Raises:
            HeadToHeadError: If an axis is unknown, occurs twice, has a field that ``sizes`` set or, in a product, a
                field of another axis; if the values of an axis are no list, an empty one or contain one twice; if a
                ``zip`` is no mapping, or has lists of different lengths; or if a combination has an unknown name or
                field, or a wrong type.
        """
        if kind == ZIP:
            block_location = SourceLocation(location.source, location.path[:-1])
            self.add_block("product", {ZIP: content}, block_location)
            return
        plain = {axis: values for axis, values in content.items() if axis != ZIP}
        zipped = content.get(ZIP, {})
        zipped_axes = zipped.keys() if isinstance(zipped, Mapping) else ()
        for axis in plain.keys() & zipped_axes:
            raise location.child(ZIP, axis).error(
                f"'{axis}' is an axis of this {kind} already; remove one of them"
            )
        choices = [self.choices({axis: values}, location) for axis, values in plain.items()]
        axes: list[Axis] = [(axis,) for axis in plain]
        if ZIP in content:
            choices.append(self.choices(zipped, location.child(ZIP)))
            axes.append(tuple(zipped))
        if kind == "product":
            refuse_both({**plain, **zipped}, location)
            self._add_product(axes, choices)
        else:
            for values, size in itertools.product(itertools.chain(*choices), self.sizes):
                self._add({**values, **size})

    def _add_product(self, axes: list[Axis], choices: list[list[Values]]) -> None:
        """Add every combination of the choices of axes, with the sizes as a further axis, and the product itself.

        Args:
            axes: The axes.
            choices: The values of each axis, in the same order.

        Raises:
            HeadToHeadError: If a combination has an unknown name or field, or a wrong type.
        """
        if self.sizes[0]:
            choices = [*choices, self.sizes]
            axes = [*axes, (SIZE_AXIS,)]
        keys = {}
        for indices in itertools.product(*(range(len(choice)) for choice in choices)):
            values: dict[str, Written] = {}
            for choice, index in zip(choices, indices, strict=True):
                values |= choice[index]
            keys[indices] = self._add(values)
        self.products.append(Product(tuple(axes), keys))

    def choices(self, axes: Any, location: SourceLocation) -> list[Values]:
        """Return the values of axes, as `located_values` does, and add new axes to those of the design.

        Raises:
            HeadToHeadError: See `located_values`.
        """
        values = located_values(axes, location, sized_fields(self.loaded))
        self.axes += [axis for axis in axes if axis not in self.axes]
        return values

    def _assign_sizes(self) -> None:
        """Check the fields of ``sizes``, and set those of the first size in ``start``.

        Without ``sizes``, the single entry of `_sizes` has no values, and nothing happens. Values of plain fields are
        validated when a combination is built.

        Raises:
            HeadToHeadError: If a size is empty, two sizes set different fields or are equal, or a field is no field of
                a configuration; or if the first size names an unknown component, or has a component or a section of a
                wrong kind.
        """
        if not self.sizes[0]:
            return
        sizes = [values[SIZE_AXIS] for values in self.sizes]
        contents = [size.value for size in sizes]
        first = contents[0]
        for content, location in sizes:
            if not content:
                raise location.error("this size sets no field; add one, or remove the size")
            if content.keys() != first.keys():
                raise location.error(
                    f"every size sets the same fields; the first one sets {', '.join(first)}"
                )
            if contents.count(content) > 1:
                raise location.error("this size is listed twice; remove one")
            for name, value in content.items():
                check_axis(name, [value], location.child(name))
        first_location = sizes[0].location
        for name, value in first.items():
            self.start.assign(tuple(name.split(".")), value, first_location.child(name))

    def _size_label(self, size: Mapping[str, Any]) -> str:
        """Return the fields of a size that tell sizes apart, with their values."""
        parts = []
        for path, value in self._distinguishing_fields(size).items():
            parts.append(f"{path.rpartition('.')[2]} {text(scalar(value))}")
        return ", ".join(parts)

    def _distinguishing_fields(self, size: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first fields of a size, as many as tell all sizes apart."""
        sizes = [[*values[SIZE_AXIS].value.values()] for values in self.sizes]
        number = 1
        while number < len(size) and len({str(values[:number]) for values in sizes}) < len(sizes):
            number += 1
        return dict([*size.items()][:number])

    def _phrases(self, labels: Mapping[str, Mapping[str, Scalar]]) -> dict[str, dict[str, str]]:
        """Return the phrases of the axis values of each combination by its key.

        Args:
            labels: The labels of the axis values of each combination.

        Raises:
            HeadToHeadError: If a name of the file is that of no axis, or of no value.
        """
        given = GivenNames(self.loaded)
        given.check({axis: [axes[axis] for axes in labels.values()] for axis in self.axes})
        phrases: dict[str, dict[str, str]] = {key: {} for key in labels}
        for axis in self.axes:
            by_label: dict[str, str] = {}
            for key, cell in self.cells.items():
                label = labels[key][axis]
                if text(label) not in by_label:
                    by_label[text(label)] = self._value_phrase(axis, label, cell)
            names = given.distinct_phrases(axis, by_label)
            for key, axes in labels.items():
                phrases[key][axis] = names[text(axes[axis])]
        return phrases

    def _value_phrase(self, axis: str, label: Scalar, cell: _Cell) -> str:
        """Return what people call the value of a combination on an axis."""
        written = cell.written.get(axis)
        if axis == RECIPE_AXIS:
            written = written or self.recipe
        if axis == DATA_AXIS and written is None:
            written = self.baseline.written.get(axis)
        value = written.value if written else None
        if axis == SIZE_AXIS and isinstance(value, Mapping):
            value = self._distinguishing_fields(value)
        return value_phrase(axis, label, value, cell.config)

    def _add(self, values: Values) -> str:
        """Add a combination and return its key.

        If an equal combination exists, it stays and gets the values of the axes that it lacks. If they differ in
        fields of ``train`` that no result depends on, a note with the values of these fields is added.

        Raises:
            HeadToHeadError: If an axis or a value is unknown or has a wrong type.
        """
        builder, match = self._assigned(values)
        cell = _Cell(builder.build(), match, dict(values))
        key = variant_key(cell.config, match)
        equal_cell = self.cells.setdefault(key, cell)
        if equal_cell.config.train != cell.config.train:
            note = _fields_without_effect(cell.config, equal_cell.config)
            if note not in self.notes:
                self.notes.append(note)
        equal_cell.written = {**cell.written, **equal_cell.written}
        return key

    def _assigned(self, values: Values) -> tuple[ConfigBuilder, Match]:
        """Return a copy of the baseline's builder, and the match, with the values of a combination.

        With the axis ``recipe``, base and baseline are merged over that recipe instead. Sections are assigned before
        their fields.

        Raises:
            HeadToHeadError: If a name, a field or a match is unknown, a field is given twice, or a component or a
                section has a value of a wrong kind.
        """
        builder = self.start.copy()
        if RECIPE_AXIS in values:
            builder = self._merged_over(values[RECIPE_AXIS])
        match = self.baseline.match
        for axis in sorted(values, key=assignment_order):
            value, location = values[axis]
            if axis == MATCH_AXIS:
                match = check_match(value, location)
            elif axis == SIZE_AXIS:
                for name, setting in value.items():
                    builder.assign(tuple(name.split(".")), setting, location.child(name))
            elif axis != RECIPE_AXIS:
                builder.assign(tuple(axis.split(".")), value, location)
        return builder, match

    def _label(self, axis: str, cell: _Cell) -> Scalar:
        """Return the label of a combination on an axis; None for the axis ``recipe`` without any recipe.

        The axes ``data``, ``recipe`` and ``size`` have labels of their own. Names of components and a text for
        ``model.d_ff``, such as ``4x``, are as written; all other values are as resolved.
        """
        written = cell.written.get(axis)
        if axis == MATCH_AXIS:
            return cell.match
        if axis == RECIPE_AXIS:
            recipe = written or self.recipe
            return label_of_recipe(*recipe) if recipe else None
        if axis == SIZE_AXIS:
            return self._size_label(cell.written[axis].value)
        if axis == DATA_AXIS:
            # A combination that does not set the axis has the baseline's data, and so the baseline's label, unless
            # another axis, such as recipe, changes the data.
            if written is None and cell.config.data == self.baseline.config.data:
                written = self.baseline.written.get(axis)
            return label_of_data(*written) if written else cell.config.data.dataset
        is_label_as_written = axis in COMPONENTS or axis == "model.d_ff"
        if written and is_label_as_written and isinstance(written.value, str):
            return written.value
        return label_at(cell.config, tuple(axis.split(".")))


def _unique_slugs(labels: Mapping[str, Mapping[str, Scalar]]) -> dict[str, str]:
    """Return the slug of each combination by its key; equal slugs get a hash of the configuration."""
    slugs = {key: slug_of(axes) for key, axes in labels.items()}
    counts = Counter(slugs.values())
    for key, slug in slugs.items():
        if counts[slug] > 1:
            slugs[key] = f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return slugs


def _expand_between(
    loaded: LoadedExperiment,
    datasets: PreparedDataSets | None,
    block: BetweenDesign,
    location: SourceLocation,
) -> Design:
    """Return the design of ``between``: both configurations, every change added to the first and taken from the second.

    Combinations that cannot run are excluded, with the contrasts that contain them.

    Raises:
        HeadToHeadError: If the configurations are equal, or one of them is invalid, excluded or cannot run; if a group
            of fields is invalid; if ``match`` changes ``model.d_ff`` although it is a change; if there are too many
            runs; if ``names`` has a change or a value that the design lacks; if the data cannot be read, or a plugin is
            faulty.
    """
    file = loaded.file
    start = _end_builder(loaded, block.start, location.child(START))
    end = _end_builder(loaded, block.end, location.child(END))
    start.build_consistent()
    end.build_consistent()
    match = file.match
    changes = changes_between(start, end, block.groups, location.child("groups"))
    if not changes:
        raise location.error(
            "both configurations are the same after base is merged over them; remove the fields that should differ "
            "from base"
        )
    is_matched_width = any(("model", "d_ff") in fields for fields in changes.values())
    if match != "none" and is_matched_width:
        raise loaded.location("match").error(
            f"'{match}' changes model.d_ff, which is a change here; set match: none"
        )
    given = GivenNames(loaded, (START, END))
    names = _end_names(block, given)
    points, contrasts = expand_between(start, end, names, changes, match, given)
    axes = tuple(changes)
    exclusions = Exclusions(loaded, start, axes, datasets)
    required = {
        slug: (f"the configuration '{slug}'", location.child(slug)) for slug in (START, END)
    }
    variants, excluded = exclusions.split(points, required)
    refuse_many_runs(loaded.path, file, len(variants), len(loaded.seeds), loaded.max_runs)
    slugs = {variant.slug for variant in variants}
    run_contrasts = [
        contrast for contrast in contrasts if {contrast.variant, contrast.against} <= slugs
    ]
    return Design(
        axes=axes,
        variants=tuple(variants),
        baseline=START,
        excluded=tuple(excluded),
        seeds=loaded.seeds,
        start=start,
        notes=exclusions.notes(),
        axis_names=names_of_changes(changes, block.groups),
        difference_name=ALL_CHANGES if names == UNNAMED else change_clause(names[1], names[0]),
        changes=tuple(run_contrasts),
    )


def _refuse_beside_between(loaded: LoadedExperiment) -> None:
    """Raise a `HeadToHeadError` if the file has another block, or a section that cannot stand beside ``between``.

    These are ``sizes``, ``baseline``, ``contrasts`` and ``base.recipe``.
    """
    file = loaded.file
    if len(file.design) > 1:
        raise loaded.location("design").error(
            "between must be the only block of a design; use one file per question"
        )
    if file.sizes:
        raise loaded.location("sizes").error("between has no sizes; use one file per size")
    is_present_at = {
        ("baseline",): bool(file.baseline),
        ("contrasts",): bool(file.contrasts),
        ("base", "recipe"): "recipe" in file.base,
    }
    for path, is_present in is_present_at.items():
        if is_present:
            raise loaded.location(*path).error(
                "a file with between has no baseline, contrasts or base.recipe: its variants are from, to and the "
                "single changes between them"
            )


def _end_builder(
    loaded: LoadedExperiment, fields: Mapping[str, Any], location: SourceLocation
) -> ConfigBuilder:
    """Return a configuration of ``between``, with base and ``--set`` merged over it."""
    builder = ConfigBuilder(location)
    builder.merge(fields, location)
    builder.merge(loaded.file.base, loaded.location("base"))
    for override in loaded.overrides:
        builder.assign(override.path, override.value, override.location)
    return builder


UNNAMED = ("the first configuration", "the second configuration")
"""The names of two configurations without a recipe, or with the same one, that the file does not name."""

ALL_CHANGES = "all changes"
"""The name of the contrast between two such configurations."""

CHANGED = "{recipe} with changes"


def _end_names(block: BetweenDesign, given: GivenNames) -> tuple[str, str]:
    """Return the names of both configurations: those of the file, else of their recipes, else `UNNAMED`.

    A recipe with further fields has the name `CHANGED`. If both names are equal, both are replaced by `UNNAMED`.

    Raises:
        HeadToHeadError: If a recipe is not registered.
    """
    names = []
    written_at = {START: block.start, END: block.end}
    for (key, written), unnamed in zip(written_at.items(), UNNAMED, strict=True):
        name = given.configuration_names.get(key, unnamed)
        if name == unnamed and "recipe" in written:
            recipe = as_noun(named_phrase("recipe", str(written["recipe"]), {}))
            name = CHANGED.format(recipe=recipe) if len(written) > 1 else recipe
        names.append(name)
    first, second = names
    return UNNAMED if first == second else (first, second)
