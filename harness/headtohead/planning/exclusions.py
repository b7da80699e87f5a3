"""Find out why a combination does not run: the file excludes it, or its settings are incompatible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headtohead.config.builder import FAMILIES, ConfigBuilder, assignment_order
from headtohead.config.labels import value_at
from headtohead.config.loading import LoadedExperiment
from headtohead.config.resolve import build_config, find_contradiction
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.axes import DATA_AXIS, MATCH_AXIS, RECIPE_AXIS, Match, assign_data, data_parts, match_value
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import INIT_FROM, SECTIONS, RunConfig

FindIncompatibility = Callable[[RunConfig], str | None]
"""Returns why a configuration without contradictions cannot run, or None."""

Condition = Callable[[RunConfig, Match], bool]


@dataclass(frozen=True)
class Incompatibility:
    """The reason why a combination does not run.

    ``source`` is ``exclude`` for an exclusion of the file, and ``incompatible`` otherwise.
    """

    reason: str
    source: Literal["exclude", "incompatible"]


def no_incompatibility(config: RunConfig) -> None:
    """Return None for every configuration: used before the data is prepared."""
    return


class Incompatibilities:
    """Checks combinations of a design: first the file's exclusions, then the settings' compatibility."""

    def __init__(
        self,
        loaded: LoadedExperiment,
        registry: Registry,
        start: ConfigBuilder,
        axes: Sequence[str],
        find_incompatibility: FindIncompatibility = no_incompatibility,
    ) -> None:
        self.loaded, self.registry, self.start, self.axes = loaded, registry, start, axes
        self.find_incompatibility = find_incompatibility
        self.exclusions = [
            self.conditions(exclusion.when, loaded.location("exclude", number, "when"))
            for number, exclusion in enumerate(loaded.file.exclude)
        ]
        self._used: set[int] = set()

    def find(self, config: RunConfig, match: Match) -> Incompatibility | None:
        """Return why a combination does not run, or None if it runs."""
        excluding = self._excluding(config, match)
        if excluding:
            return Incompatibility(self.loaded.file.exclude[excluding[0]].reason, "exclude")
        contradicting = find_contradiction(config, self.registry)
        reason = contradicting[1] if contradicting else self.find_incompatibility(config)
        return Incompatibility(reason, "incompatible") if reason else None

    def require(self, config: RunConfig, match: Match, role: str) -> None:
        """Raise an error if an exclusion matches a combination that the design requires."""
        for number in self._excluding(config, match):
            raise self.loaded.location("exclude", number).error(f"this excludes {role}; narrow the exclusion")

    def notes(self) -> list[str]:
        """Return a note for each exclusion that matched no combination so far."""
        return [
            f"{self.loaded.location('exclude', number)}: the exclusion matches no combination"
            for number in range(len(self.exclusions))
            if number not in self._used
        ]

    def _excluding(self, config: RunConfig, match: Match) -> list[int]:
        """Return the indices of the exclusions that match, and mark them as used."""
        matching = [
            number
            for number, conditions in enumerate(self.exclusions)
            if all(holds(config, match) for holds in conditions)
        ]
        self._used.update(matching)
        return matching

    def conditions(self, when: Mapping[str, Any], location: SourceLocation) -> list[Condition]:
        """Return predicates that all hold for the combinations with these axis values."""
        if not when:
            raise location.error("no axis values are given; name at least one")
        if RECIPE_AXIS in when:
            raise location.child(RECIPE_AXIS).error("a recipe cannot be named here; name fields in which it differs")
        builder = self.start.copy()
        for axis in sorted(when, key=assignment_order):
            if axis not in (MATCH_AXIS, DATA_AXIS):
                self._assign(builder, axis, when[axis], location.child(axis))
        return [self._condition(axis, value, builder, location.child(axis)) for axis, value in when.items()]

    def _assign(self, builder: ConfigBuilder, axis: str, value: Any, location: SourceLocation) -> None:
        if axis not in self.axes and axis.split(".")[0] not in (*FAMILIES, *SECTIONS, INIT_FROM):
            raise location.error(f"unknown axis '{axis}'{nearest(axis, self.axes)}")
        builder.assign(tuple(axis.split(".")), value, location)

    def _condition(self, axis: str, value: Any, builder: ConfigBuilder, location: SourceLocation) -> Condition:
        """Return a predicate for an axis value; ``builder`` has the values of all axes."""
        if axis == MATCH_AXIS:
            wanted = match_value(value, location)
            return lambda _, match: match == wanted
        if axis == DATA_AXIS:
            return self._data_condition(value, location)
        path = tuple(axis.split("."))
        target = value_at(build_config(builder), path)
        named_only = isinstance(value, str) and path[0] in FAMILIES

        def holds(config: RunConfig, _: Match) -> bool:
            actual = value_at(config, path)
            return bool(_names(actual) == _names(target) if named_only else actual == target)

        return holds

    def _data_condition(self, value: Any, location: SourceLocation) -> Condition:
        """Return whether a configuration has a dataset of this name, or with fields exactly this data section."""
        name, fields = data_parts(value, location)
        builder = self.start.copy()
        assign_data(builder, value, location)
        data = build_config(builder).data
        return lambda config, _: config.data == data if fields else config.data.dataset == name


def _names(value: Any) -> Any:
    """Return entries without their options: names by role, or a name."""
    if isinstance(value, Mapping) and set(value) == set(ROLES):
        return {role: value[role]["name"] for role in ROLES}
    return value["name"] if isinstance(value, Mapping) else value
