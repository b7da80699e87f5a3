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
from headtohead.planning.variants import DATA_AXIS, MATCH_AXIS, RECIPE_AXIS, Variant, check_match
from headtohead.plugins.families import COMPONENTS
from headtohead.schema.run_config import SECTIONS, RunConfig
from headtohead.storage.experiment import ExcludedRecord

Condition = Callable[[Variant], bool]


class Incompatibilities:
    """Checks combinations of a design: first the file's exclusions, then the settings' compatibility."""

    def __init__(
        self,
        loaded: LoadedExperiment,
        start: ConfigBuilder,
        axes: Sequence[str],
        datasets: PreparedDataSets | None,
    ) -> None:
        self.loaded, self.start, self.axes, self.datasets = loaded, start, axes, datasets
        self.exclusions = [
            self.condition(exclusion.when, loaded.location("exclude", number, "when"))
            for number, exclusion in enumerate(loaded.file.exclude)
        ]
        self.unused = set(range(len(self.exclusions)))

    def split(
        self, variants: Iterable[Variant], required: Mapping[str, tuple[str, SourceLocation]]
    ) -> tuple[list[Variant], list[ExcludedRecord]]:
        """Return the variants that run, and the others with their reasons.

        It is an error if a variant does not run that is ``required``, by its slug with a description and a location.
        """
        running, excluded = [], []
        for variant in variants:
            matching = [number for number, holds in enumerate(self.exclusions) if holds(variant)]
            self.unused.difference_update(matching)
            contradiction = find_contradiction(variant.config)
            if matching:
                reason: str | None = self.loaded.file.exclude[matching[0]].reason
            else:
                reason = contradiction[1] if contradiction else self._incompatibility(variant)
            if reason is None:
                running.append(variant)
            elif variant.slug not in required:
                source = "exclude" if matching else "incompatible"
                excluded.append(
                    ExcludedRecord(
                        slug=variant.slug,
                        title=variant.title,
                        axes=variant.axes,
                        reason=reason,
                        source=source,
                    )
                )
            elif matching:
                role, _ = required[variant.slug]
                raise self.loaded.location("exclude", matching[0]).error(
                    f"this excludes {role}; narrow the exclusion"
                )
            else:
                raise required[variant.slug][1].error(reason)
        return running, excluded

    def _incompatibility(self, variant: Variant) -> str | None:
        """Return why a variant without contradictions cannot run, or None; without data, None."""
        return self.datasets.incompatibility(variant.config) if self.datasets else None

    def notes(self) -> tuple[str, ...]:
        """Return a note for each exclusion that matched no combination so far."""
        return tuple(
            f"{self.loaded.location('exclude', number)}: the exclusion matches no combination"
            for number in sorted(self.unused)
        )

    def condition(self, when: Mapping[str, Any], location: SourceLocation) -> Condition:
        """Return a predicate that holds for the combinations with these axis values."""
        if not when:
            raise location.error("no axis values are given; name at least one")
        if RECIPE_AXIS in when:
            raise location.child(RECIPE_AXIS).error(
                "a recipe cannot be named here; name fields in which it differs"
            )
        builder = self.start.copy()
        for axis in sorted(when, key=assignment_order):
            if axis not in (MATCH_AXIS, DATA_AXIS):
                if axis not in self.axes and axis.split(".")[0] not in (
                    *COMPONENTS,
                    *SECTIONS,
                ):
                    raise location.child(axis).error(
                        f"unknown axis '{axis}'{nearest(axis, self.axes)}"
                    )
                builder.assign(tuple(axis.split(".")), when[axis], location.child(axis))
        config = builder.build()
        conditions = [
            self._condition(axis, value, config, location.child(axis))
            for axis, value in when.items()
        ]
        return lambda variant: all(holds(variant) for holds in conditions)

    def _condition(
        self, axis: str, value: Any, config: RunConfig, location: SourceLocation
    ) -> Condition:
        """Return a predicate for an axis value; ``config`` has the values of all axes."""
        if axis == MATCH_AXIS:
            match = check_match(value, location)
            return lambda variant: bool(variant.match == match)
        if (
            axis == DATA_AXIS
        ):  # a name stands for all data of the dataset, fields for exactly this data
            name, fields = named_parts(value, location, "dataset")
            builder = self.start.copy()
            builder.assign((DATA_AXIS,), value, location)
            data = builder.build().data
            return lambda variant: (
                variant.config.data == data if fields else variant.config.data.dataset == name
            )
        if axis == "model.d_ff" and isinstance(value, str):  # 4x depends on the variant's width
            return lambda variant: bool(
                variant.config.model.d_ff == times_width(value, variant.config.model.d_model)
            )
        path = tuple(axis.split("."))
        is_entry = path[0] in COMPONENTS or path in SECTION_ENTRIES
        of = _names if isinstance(value, str) and is_entry else lambda value: value
        target = of(value_at(config, path))
        return lambda variant: bool(of(value_at(variant.config, path)) == target)


def _names(value: Any) -> Any:
    """Return entries without their options: names by role, or a name."""
    if isinstance(value, Mapping):
        if "name" in value:
            return (
                value["name"]
                if "next_layers" not in value
                else [value["name"], *map(_names, value["next_layers"])]
            )
        return {role: _names(entry) for role, entry in value.items()}
    return value
