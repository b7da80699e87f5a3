"""Find out why a combination does not run: the file excludes it, or its settings are incompatible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headtohead.config.builder import (
    SECTION_ENTRIES,
    ConfigBuilder,
    assignment_order,
    named_parts,
    times_width,
)
from headtohead.config.contradictions import find_contradiction
from headtohead.config.labels import value_at
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.datasets import PreparedDataSets
from headtohead.planning.variants import (
    DATA_AXIS,
    MATCH_AXIS,
    RECIPE_AXIS,
    SIZE_AXIS,
    Variant,
    check_match,
)
from headtohead.plugins.families import COMPONENTS
from headtohead.schema.run_config import QUIRKS, SECTIONS, RunConfig
from headtohead.storage.experiment import ExcludedRecord

Condition = Callable[[Variant], bool]

EXCLUDES_REQUIRED = "this excludes {variant}; narrow the exclusion"
NO_MATCH = "{location}: the exclusion matches no combination"
NO_VALUES = "no axis values are given; name at least one"
RECIPE = "a recipe cannot be named here; name fields in which it differs"
SIZE = "a size cannot be named here; name fields that it sets"


class Exclusions:
    """The excluded combinations of a design: those of ``exclude`` in the file, then those of incompatible settings.

    Args:
        loaded: The experiment file.
        start: Builds the configuration over which the values of an exclusion are assigned.
        axes: The axes of the design.
        datasets: The data of the experiment; None checks contradictions between fields only.

    Raises:
        HeadToHeadError: If an exclusion of the file is invalid, with its location.
    """

    def __init__(
        self,
        loaded: LoadedExperiment,
        start: ConfigBuilder,
        axes: Sequence[str],
        datasets: PreparedDataSets | None,
    ) -> None:
        self.loaded = loaded
        self.start = start
        self.axes = axes
        self.datasets = datasets
        self.exclusions = [
            self.condition(exclusion.when, loaded.location("exclude", number, "when"))
            for number, exclusion in enumerate(loaded.file.exclude)
        ]
        self.unused = set(range(len(self.exclusions)))
        """The numbers of the exclusions that have matched no combination so far."""

    def split(
        self, variants: Iterable[Variant], required: Mapping[str, tuple[str, SourceLocation]]
    ) -> tuple[list[Variant], list[ExcludedRecord]]:
        """Return the variants that run, and the others with their reasons, both in the order of ``variants``.

        Exclusions that match a variant no longer appear in `notes`.

        Args:
            variants: All combinations of the design.
            required: By slug, the variants that must run, each with a description and its location in the file.

        Raises:
            HeadToHeadError: If a required variant does not run, the data cannot be read, or a plugin is faulty.
        """
        running: list[Variant] = []
        excluded: list[ExcludedRecord] = []
        for variant in variants:
            exclusion = self._first_exclusion(variant)
            reason = self._reason(variant, exclusion)
            if reason is None:
                running.append(variant)
                continue
            if variant.slug in required:
                description, location = required[variant.slug]
                if exclusion is None:
                    raise location.error(reason)
                raise self.loaded.location("exclude", exclusion).error(
                    EXCLUDES_REQUIRED.format(variant=description)
                )
            record = ExcludedRecord(
                slug=variant.slug,
                title=variant.title,
                axes=variant.axes,
                phrases=variant.phrases,
                reason=reason,
                source="incompatible" if exclusion is None else "exclude",
            )
            excluded.append(record)
        return running, excluded

    def _first_exclusion(self, variant: Variant) -> int | None:
        """Return the number of the first exclusion that holds for a variant, and note which ones hold for any."""
        matching = [number for number, holds in enumerate(self.exclusions) if holds(variant)]
        self.unused.difference_update(matching)
        return matching[0] if matching else None

    def _reason(self, variant: Variant, exclusion: int | None) -> str | None:
        """Return the reason that the file gives for an exclusion; without one, why the settings cannot run, or None."""
        if exclusion is not None:
            return self.loaded.file.exclude[exclusion].reason
        return self._incompatibility(variant)

    def _incompatibility(self, variant: Variant) -> str | None:
        """Return why the settings of a variant cannot run, or None; without data, only contradictions are found."""
        contradiction = find_contradiction(variant.config)
        if contradiction is not None:
            _, reason = contradiction
            return reason
        if self.datasets is None:
            return None
        return self.datasets.incompatibility(variant.config)

    def notes(self) -> tuple[str, ...]:
        """Return a note for each exclusion that matched no combination so far."""
        notes = []
        for number in sorted(self.unused):
            location = self.loaded.location("exclude", number)
            notes.append(NO_MATCH.format(location=location))
        return tuple(notes)

    def condition(self, when: Mapping[str, Any], location: SourceLocation) -> Condition:
        """Return a predicate that holds for the combinations that have all of these axis values.

        A name of an entry or of a dataset holds with any options. A mapping with ``name`` holds with exactly its
        options and the defaults of the others. Every other mapping (of roles, of options without ``name``, of a
        section or of ``data``) is merged into the starting configuration and holds for the whole result: what it leaves
        out must be equal there too. Any other value, such as a number, must be equal to that of the combination.

        Args:
            when: A value by axis; other components and fields of a configuration are permitted too.
            location: Location of ``when`` in the file.

        Raises:
            HeadToHeadError: If there are no values, one of them is of the axis ``recipe`` or ``size``, or an axis or a
                value is invalid.
        """
        if not when:
            raise location.error(NO_VALUES)
        if RECIPE_AXIS in when:
            raise location.child(RECIPE_AXIS).error(RECIPE)
        if SIZE_AXIS in when:
            raise location.child(SIZE_AXIS).error(SIZE)
        config = self._with_values(when, location)
        conditions = []
        for axis, value in when.items():
            conditions.append(self._condition(axis, value, config, location.child(axis)))
        return lambda variant: all(holds(variant) for holds in conditions)

    def _with_values(self, when: Mapping[str, Any], location: SourceLocation) -> RunConfig:
        """Return the starting configuration with the values of a condition, except ``match`` and ``data``.

        Raises:
            HeadToHeadError: If an axis is neither of the design nor a field of a configuration, or a value is invalid.
        """
        builder = self.start.copy()
        for axis in sorted(when, key=assignment_order):
            if axis in (MATCH_AXIS, DATA_AXIS):
                continue
            section, *_ = axis.split(".")
            if axis not in self.axes and section not in (*COMPONENTS, *SECTIONS, QUIRKS):
                hint = nearest(axis, self.axes)
                raise location.child(axis).error(f"unknown axis '{axis}'{hint}")
            builder.assign(tuple(axis.split(".")), when[axis], location.child(axis))
        return builder.build()

    def _condition(
        self, axis: str, value: Any, config: RunConfig, location: SourceLocation
    ) -> Condition:
        """Return a predicate that holds for the variants with an axis value.

        The name of an entry or of a dataset holds with any options. A text of ``model.d_ff`` such as ``4x`` is a
        multiple of each variant's own width. Any other value must be equal to the resolved one.

        Args:
            axis: The axis.
            value: The value as written.
            config: The starting configuration with all values of the condition, for the resolved value.
            location: Location of the value in the file.

        Raises:
            HeadToHeadError: If a value of ``match`` or ``data`` is invalid.
        """
        if axis == MATCH_AXIS:
            match = check_match(value, location)
            return lambda variant: bool(variant.match == match)
        if axis == DATA_AXIS:
            return self._data_condition(value, location)
        if axis == "model.d_ff" and isinstance(value, str):  # 4x depends on the variant's width
            return lambda variant: _has_multiple_width(variant, value)
        path = tuple(axis.split("."))
        target = value_at(config, path)
        is_entry = path[0] in COMPONENTS or path in SECTION_ENTRIES
        if isinstance(value, str) and is_entry:  # a name stands for all options
            names = _names(target)
            return lambda variant: bool(_names(value_at(variant.config, path)) == names)
        return lambda variant: bool(value_at(variant.config, path) == target)

    def _data_condition(self, value: Any, location: SourceLocation) -> Condition:
        """Return a predicate for the data: a name stands for all data of the dataset, fields for exactly this data.

        Fields that are not named have the values of the starting configuration. The value is checked in both cases.
        """
        name, fields = named_parts(value, location, "dataset")
        builder = self.start.copy()
        builder.assign((DATA_AXIS,), value, location)
        data = builder.build().data
        if fields:
            return lambda variant: variant.config.data == data
        return lambda variant: variant.config.data.dataset == name


def _has_multiple_width(variant: Variant, multiple: str) -> bool:
    """Return whether the width of the feed-forward network is a multiple of that of the model, such as ``4x``."""
    model = variant.config.model
    return bool(model.d_ff == times_width(multiple, model.d_model))


def _names(value: Any) -> Any:
    """Return entries without their options: names by role, a name, or the names of a pattern."""
    if not isinstance(value, Mapping):
        return value
    if "name" not in value:
        return {role: _names(entry) for role, entry in value.items()}
    if "next_layers" not in value:
        return value["name"]
    return [value["name"], *map(_names, value["next_layers"])]
