"""Expand the design of an experiment into variants, exclusions and contrasts."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headtohead.config.builder import (
    ConfigBuilder,
    assignment_order,
    named_parts,
    refuse_both,
)
from headtohead.config.identity import run_identity
from headtohead.config.labels import Scalar, label_at, scalar, slug_of, text, titles_of
from headtohead.config.loading import LoadedExperiment, refuse_many_runs
from headtohead.config.source_location import SourceLocation, shown
from headtohead.planning.between import END, START, changes_between, expand_between
from headtohead.planning.contrasts import (
    Axis,
    Factorial,
    declared_contrasts,
    factor_contrasts,
    interaction_contrasts,
)
from headtohead.planning.exclusions import FindIncompatibility, Incompatibilities
from headtohead.planning.metrics import reported_metrics
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
    label_of_parts,
)
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import Registry
from headtohead.schema.experiment_file import ZIP, BetweenDesign
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.storage.contrasts import (
    ChangeContrast,
    ContrastRecord,
    DeclaredContrast,
    VariantContrast,
)
from headtohead.storage.experiment import ExcludedRecord
from headtohead.storage.metrics import find


@dataclass(frozen=True)
class Design:
    """The expanded design: variants, exclusions, seeds and the structure that contrasts are built from.

    ``start`` builds the baseline's configuration, and ``labels`` holds the axis values by slug, including those of
    excluded combinations.
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
    changes: tuple[ChangeContrast, ...] = ()
    declared: tuple[DeclaredContrast, ...] = ()

    def variant(self, slug: str) -> Variant:
        """Return the variant with this slug."""
        return next(variant for variant in self.variants if variant.slug == slug)

    def baseline_of(self, slug: str) -> str | None:
        """Return the baseline of a variant, which has its values of the axes data and size; None if it is excluded."""
        own, group = (
            self.labels.get(self.baseline, {}),
            comparison_group(self.labels.get(slug, {})),
        )  # a sweep has none
        found = next(
            (other.slug for other in self.variants if other.axes == {**own, **group}), None
        )
        return found or (self.baseline if comparison_group(own) == group else None)

    def contrasts(self) -> list[ContrastRecord]:
        """Return the contrasts to test: every variant against the baseline, axis values, interactions, declared ones.

        Between two configurations, these are their difference, then every change added and taken.
        """
        titles = {variant.slug: variant.title for variant in self.variants}
        if self.changes:
            name = f"{titles[END]} − {titles[START]}"
            return [VariantContrast(name=name, variant=END, against=START), *self.changes]
        plain = []
        for slug, title in titles.items():
            other = self.baseline_of(slug)
            if other not in (slug, None):
                name = f"{title} − {'baseline' if other == self.baseline else titles[other]}"
                plain.append(VariantContrast(name=name, variant=slug, against=other))
        arguments = self.factorials, self.labels, self.baseline, titles
        return [
            *plain,
            *factor_contrasts(*arguments),
            *interaction_contrasts(*arguments),
            *self.declared,
        ]


def expand(
    loaded: LoadedExperiment,
    registry: Registry,
    find_incompatibility: FindIncompatibility = lambda config: None,
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
    blocks: list[tuple[str, Any, SourceLocation]] = []
    for number, block in enumerate(loaded.file.design):
        location = loaded.location("design", number)
        kinds = [name for name in type(block).model_fields if getattr(block, name) is not None]
        if len(kinds) != 1:
            names = " and ".join(kinds) or "none of them"
            raise location.error(
                f"a block requires one of product, one_at_a_time, zip or between; got {names}"
            )
        blocks.append((kinds[0], getattr(block, kinds[0]), location.child(kinds[0])))
    between = next(
        ((content, location) for kind, content, location in blocks if kind == "between"), None
    )
    if between:
        design = _expand_between(loaded, registry, find_incompatibility, *between)
    else:
        axes = Axes(loaded, registry)
        for kind, content, location in blocks:
            axes.add_block(kind, content, location)
        design = axes.design(find_incompatibility)
    return _with_translation_notes(design, loaded)


def _with_translation_notes(design: Design, loaded: LoadedExperiment) -> Design:
    """Return the design with a note on variants without a score because they do not translate.

    Raises:
        HeadToHeadError: If the baseline or, with ``between``, any variant does not translate.
    """
    metric = reported_metrics(loaded, design.variant(design.baseline).config).primary
    known = find(metric)
    if known is None or known.per_example is None:
        return design
    silent = [
        variant.slug for variant in design.variants if variant.config.evaluate.decode == "none"
    ]
    if silent and (design.changes or design.baseline in silent):
        raise loaded.location("metrics", "primary").error(
            f"'{metric}' requires translations, but variant '{silent[0]}' has evaluate.decode: none; use "
            "test/token_accuracy, or another evaluate.decode"
        )
    notes = [f"no {metric} for {slug}, which has evaluate.decode: none" for slug in silent]
    return replace(design, notes=(*design.notes, *notes))


def variant_key(config: RunConfig, match: Match) -> str:
    """Return a text that is equal for equal combinations.

    The data section stands for the data hash, which is unknown before the data is prepared.
    """
    return json.dumps(
        [run_identity(config, ""), config.data.model_dump(mode="json"), match], sort_keys=True
    )


@dataclass
class _Cell:
    """A resolved combination of axis values; ``written`` are the values as in the file, with their locations."""

    config: RunConfig
    match: Match
    written: dict[str, tuple[Any, SourceLocation]]


Values = Mapping[str, tuple[Any, SourceLocation]]
"""The value of each axis of a combination, with its location."""


class Axes:
    """Expands blocks of axes: each combination of values overrides the baseline."""

    def __init__(self, loaded: LoadedExperiment, registry: Registry) -> None:
        self.loaded, self.registry = loaded, registry
        sections = [name for name in ("baseline", "base") if "recipe" in getattr(loaded.file, name)]
        self.recipe = next(
            (
                (getattr(loaded.file, name)["recipe"], loaded.location(name, "recipe"))
                for name in sections
            ),
            None,
        )
        self.start = self._merged_over(self.recipe)
        self.sizes: list[Values] = [
            {SIZE_AXIS: (size, loaded.location("sizes", number))}
            for number, size in enumerate(loaded.file.sizes or ())
        ] or [{}]
        self._assign_sizes()
        self.baseline = _Cell(self.start.build_consistent(), loaded.file.match, dict(self.sizes[0]))
        self.axes: list[str] = []
        self.notes: list[str] = []
        self.cells: dict[str, _Cell] = {
            variant_key(self.baseline.config, self.baseline.match): self.baseline
        }
        self.products: list[tuple[tuple[Axis, ...], dict[tuple[int, ...], str]]] = []
        for size in self.sizes[1:]:
            self._add(size)

    def design(self, find_incompatibility: FindIncompatibility) -> Design:
        """Return the design of the blocks that were added."""
        self.axes += self.sizes[0]
        absent = {*ROLES}.difference(*(cell.config.roles for cell in self.cells.values()))
        absent |= {f"{role}_layers" for role in absent}
        if lost := [axis for axis in self.axes if {*axis.split(".")[1:2]} & absent]:
            reason = (
                "a decoder-only model has neither encoder nor cross-attention; remove this axis"
            )
            raise self.loaded.location("design").child(lost[0]).error(reason)
        incompatibilities = Incompatibilities(
            self.loaded, self.registry, self.start, self.axes, find_incompatibility
        )
        labels = {
            key: {axis: self._label(axis, cell) for axis in self.axes}
            for key, cell in self.cells.items()
        }
        slugs = {key: slug_of(axes) for key, axes in labels.items()}
        counts = Counter(slugs.values())
        for key, slug in slugs.items():
            if counts[slug] > 1:  # equal slugs get a hash of the configuration
                slugs[key] = f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
        titles = titles_of([*labels.values()], (DATA_AXIS, SIZE_AXIS))
        found = [
            Variant(slugs[key], title, labels[key], cell.config, cell.match)
            for (key, cell), title in zip(self.cells.items(), titles, strict=True)
        ]
        location = self.loaded.location("baseline" if self.loaded.file.baseline else "base")
        required = {found[0].slug: ("the baseline, which every variant is compared with", location)}
        variants, excluded = incompatibilities.split(found, required)
        return Design(
            axes=tuple(self.axes),
            variants=tuple(variants),
            baseline=found[0].slug,
            excluded=tuple(excluded),
            seeds=self.loaded.seeds,
            start=self.start,
            factorials=tuple(
                Factorial(axes, {index: slugs[key] for index, key in keys.items()})
                for axes, keys in self.products
            ),
            notes=(*self.notes, *incompatibilities.notes()),
            labels={slugs[key]: axes for key, axes in labels.items()},
            declared=declared_contrasts(
                self.loaded, variants, excluded, found[0].slug, incompatibilities.condition
            ),
        )

    def _merged_over(self, recipe: tuple[Any, SourceLocation] | None) -> ConfigBuilder:
        """Merge base, baseline, the fields beside the recipe's name and ``--set`` over a recipe."""
        builder = ConfigBuilder(self.loaded.location("base"))
        name, fields = named_parts(*recipe, "name") if recipe else (None, {})
        if recipe:
            builder.merge_recipe(name, recipe[1])
        for section in ("base", "baseline"):
            given = {
                key: value
                for key, value in getattr(self.loaded.file, section).items()
                if key != "recipe"
            }
            builder.merge(given, self.loaded.location(section))
        if recipe:
            builder.merge(fields, recipe[1])
        for override in self.loaded.overrides:
            builder.assign(override.path, override.value, override.location)
        return builder

    def add_block(self, kind: str, content: Mapping[str, Any], location: SourceLocation) -> None:
        """Add the combinations of a block; the axes of a ``zip`` inside it change together."""
        if kind == ZIP:
            kind, content, location = (
                "product",
                {ZIP: content},
                SourceLocation(location.source, location.path[:-1]),
            )
        zipped = content.get(ZIP, {})
        plain = {axis: listed for axis, listed in content.items() if axis != ZIP}
        for axis in plain.keys() & (zipped.keys() if isinstance(zipped, Mapping) else ()):
            raise location.child(ZIP, axis).error(
                f"'{axis}' is an axis of this {kind} already; remove one of them"
            )
        choices = [self.choices({axis: listed}, location) for axis, listed in plain.items()]
        axes: list[Axis] = [(axis,) for axis in plain]
        if ZIP in content:
            choices.append(self.choices(zipped, location.child(ZIP)))
            axes.append(tuple(zipped))
        if kind == "product":
            refuse_both({**plain, **zipped}, location)
            if self.sizes[0]:
                choices.append(self.sizes)
                axes.append((SIZE_AXIS,))
            keys = {
                tuple(index for index, _ in parts): self._add(
                    dict(item for _, part in parts for item in part.items())
                )
                for parts in itertools.product(*(enumerate(choice) for choice in choices))
            }
            self.products.append((tuple(axes), keys))
        else:
            for values, size in itertools.product(itertools.chain(*choices), self.sizes):
                self._add({**values, **size})

    def choices(self, axes: Any, location: SourceLocation) -> list[Values]:
        """Return the values of an axis, or of axes that change together, with lists of equal length."""
        if not isinstance(axes, Mapping) or not axes:
            raise location.error(
                f"expected a mapping of axes with lists of values, got {shown(axes)}"
            )
        refuse_both(axes, location)
        for axis, listed in axes.items():
            check_axis(axis, listed, location.child(axis))
            if axis in self.sizes[0].get(SIZE_AXIS, ({},))[0]:
                raise location.child(axis).error(
                    "sizes set this field already; remove it from the design"
                )
            if axis not in self.axes:
                self.axes.append(axis)
        lengths = {axis: len(listed) for axis, listed in axes.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{axis} has {length}" for axis, length in lengths.items())
            raise location.error(f"zip requires lists of equal length; {counts}")
        rows = [dict(zip(axes, row, strict=True)) for row in zip(*axes.values(), strict=True)]
        for number, row in enumerate(rows):
            if row in rows[:number]:
                names = ", ".join(axes)
                raise location.child(next(iter(axes)), number).error(
                    f"axis '{names}' lists this value twice; remove one"
                )
        return [
            {axis: (value, location.child(axis, number)) for axis, value in row.items()}
            for number, row in enumerate(rows)
        ]

    def _assign_sizes(self) -> None:
        """Check the fields of ``sizes``, and set those of the first size."""
        for size, location in (values[SIZE_AXIS] for values in self.sizes if values):
            first, _ = self.sizes[0][SIZE_AXIS]
            if not size or size.keys() != first.keys():
                raise location.error(
                    f"every size sets the same fields; the first one sets {', '.join(first) or 'none'}"
                )
            if any(
                size == values[SIZE_AXIS][0] and size is not values[SIZE_AXIS][0]
                for values in self.sizes
            ):
                raise location.error("this size is listed twice; remove one")
            for name, value in size.items():
                check_axis(name, [value], location.child(name))
                if size is first:
                    self.start.assign(tuple(name.split(".")), value, location.child(name))

    def _size_label(self, size: Mapping[str, Any]) -> str:
        """Return the first fields of a size with their values, as many as tell all sizes apart."""
        sizes = [[*values[SIZE_AXIS][0].values()] for values in self.sizes]
        counts = range(1, len(size))
        most = next(
            (count for count in counts if len({str(own[:count]) for own in sizes}) == len(sizes)),
            len(size),
        )
        shown_fields = [*size.items()][:most]
        return ", ".join(
            f"{field.rpartition('.')[2]} {text(scalar(own))}" for field, own in shown_fields
        )

    def _add(self, values: Values) -> str:
        """Add a combination and return its key; an equal combination gets the values of the axes that it lacks."""
        builder = (
            self._merged_over(values[RECIPE_AXIS]) if RECIPE_AXIS in values else self.start.copy()
        )
        match = self.baseline.match
        for axis in sorted(values, key=assignment_order):
            value, location = values[axis]
            if axis == MATCH_AXIS:
                match = check_match(value, location)
            elif axis == SIZE_AXIS:
                for name, own in value.items():
                    builder.assign(tuple(name.split(".")), own, location.child(name))
            elif axis != RECIPE_AXIS:
                builder.assign(tuple(axis.split(".")), value, location)
        cell = _Cell(builder.build(), match, dict(values))
        key = variant_key(cell.config, match)
        known_cell = self.cells.setdefault(key, cell)
        if known_cell.config.train != cell.config.train:
            given = ", ".join(
                f"{axis} {value[0]}" for axis, value in values.items() if axis.startswith("train.")
            )
            self.notes.append(f"{given} changes nothing: another combination has the same effect")
        known_cell.written = cell.written | known_cell.written
        return key

    def _label(self, axis: str, cell: _Cell) -> Scalar:
        """Return the label of an axis value: names and multiples as written, other values as resolved."""
        written = cell.written.get(axis)
        if axis == MATCH_AXIS:
            return cell.match
        if axis == RECIPE_AXIS:
            recipe = written or self.recipe
            return label_of_parts(*recipe, "name") if recipe else None
        if axis == SIZE_AXIS and written:
            return self._size_label(written[0])
        if axis == DATA_AXIS:
            if written is None and cell.config.data == self.baseline.config.data:
                written = self.baseline.written.get(axis)
            return label_of_parts(*written, "dataset") if written else cell.config.data.dataset
        if written and isinstance(written[0], str) and (axis in COMPONENTS or axis == "model.d_ff"):
            return written[0]
        return label_at(cell.config, tuple(axis.split(".")))


def _expand_between(
    loaded: LoadedExperiment,
    registry: Registry,
    find_incompatibility: FindIncompatibility,
    block: BetweenDesign,
    location: SourceLocation,
) -> Design:
    """Return both configurations, and every change added to the first and taken from the second."""
    if len(loaded.file.design) > 1:
        raise loaded.location("design").error(
            "between must be the only block of a design; use one file per question"
        )
    file = loaded.file
    if file.sizes:
        raise loaded.location("sizes").error("between has no sizes; use one file per size")
    for path, given in {
        ("baseline",): file.baseline,
        ("contrasts",): file.contrasts,
        ("base", "recipe"): None,
    }.items():
        if given or (given is None and "recipe" in file.base):
            raise loaded.location(*path).error(
                "a file with between has no baseline, contrasts or base.recipe: its variants are from, to and the "
                "single changes between them"
            )
    builders: dict[str, ConfigBuilder] = {}
    for side, written in (("from", block.start), ("to", block.end)):
        at = location.child(side)
        builder = ConfigBuilder(at)
        builder.merge(written, at)
        builder.merge(file.base, loaded.location("base"))
        for override in loaded.overrides:
            builder.assign(override.path, override.value, override.location)
        builders[side] = builder
    start, end = builders.values()
    start.build_consistent()
    end.build_consistent()
    match, groups = file.match, location.child("groups")
    changes = changes_between(
        start, end, lambda config: variant_key(config, match), block.groups, groups
    )
    if not changes:
        raise location.error(
            "both configurations are the same after base is merged over them; remove the fields that should differ "
            "from base"
        )
    if match != "none" and any(("model", "d_ff") in fields for fields in changes.values()):
        raise loaded.location("match").error(
            f"'{match}' widens model.d_ff, which is a change here; set match: none"
        )
    names = _end_name(block.start, "start"), _end_name(block.end, "end")
    if names[0] == names[1]:
        names = f"{names[0]} (from)", f"{names[1]} (to)"
    points, contrasts = expand_between(start, end, names, changes, match)
    axes = tuple(changes)
    incompatibilities = Incompatibilities(loaded, registry, start, axes, find_incompatibility)
    required = {
        slug: (f"the configuration '{slug}'", location.child(slug)) for slug in (START, END)
    }
    variants, excluded = incompatibilities.split(points, required)
    refuse_many_runs(loaded.path, file, len(variants), len(loaded.seeds), loaded.max_runs)
    slugs = {variant.slug for variant in variants}
    return Design(
        axes=axes,
        variants=tuple(variants),
        baseline=START,
        excluded=tuple(excluded),
        seeds=loaded.seeds,
        start=start,
        notes=incompatibilities.notes(),
        changes=tuple(
            contrast for contrast in contrasts if {contrast.variant, contrast.against} <= slugs
        ),
    )


def _end_name(written: Mapping[str, Any], otherwise: str) -> str:
    """Return the display name of a configuration: its recipe, and ", changed" if it also sets fields."""
    recipe = written.get("recipe", otherwise)
    return f"{recipe}, changed" if "recipe" in written and len(written) > 1 else str(recipe)
