"""Why a combination does not run: the file leaves it out, or it has no meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headtohead.config.builder import FAMILIES, ConfigBuilder
from headtohead.config.labels import value_at
from headtohead.config.loading import LoadedExperiment
from headtohead.config.resolve import build_config, find_contradiction
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.axes import MATCH_AXIS, Match, match_value
from headtohead.plugins.registry import Registry
from headtohead.schema.config_input import SECTIONS
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig

Undefined = Callable[[RunConfig], str | None]
"""Tells why a configuration that is free of contradictions has no meaning; None if it has one."""

Condition = Callable[[RunConfig, Match], bool]


@dataclass(frozen=True)
class Incompatibility:
    """A reason in words, and who gives it: ``exclude`` is the file, ``undefined`` an entry."""

    reason: str
    source: Literal["exclude", "undefined"]


def defined_until_data_is_read(config: RunConfig) -> str | None:
    """Return None: what only the data can tell is not asked."""
    return None


class Incompatibilities:
    """Asked about every combination of a design: first what the file excludes, then meaning."""

    def __init__(
        self,
        loaded: LoadedExperiment,
        registry: Registry,
        start: ConfigBuilder,
        axes: Sequence[str],
        undefined: Undefined = defined_until_data_is_read,
    ) -> None:
        self.loaded, self.registry, self.start, self.axes = loaded, registry, start, axes
        self.undefined = undefined
        self.exclusions = [
            self.conditions(exclusion.when, loaded.location("exclude", number, "when"))
            for number, exclusion in enumerate(loaded.file.exclude)
        ]
        self._used: set[int] = set()

    def of(self, config: RunConfig, match: Match) -> Incompatibility | None:
        """Return why a combination does not run, or None if it runs."""
        excluding = self._excluding(config, match)
        if excluding:
            return Incompatibility(self.loaded.file.exclude[excluding[0]].reason, "exclude")
        found = find_contradiction(config, self.registry)
        reason = found[1] if found else self.undefined(config)
        return Incompatibility(reason, "undefined") if reason else None

    def keep(self, config: RunConfig, match: Match, what: str) -> None:
        """Raise where an exclusion leaves out what the design cannot do without."""
        for number in self._excluding(config, match):
            raise self.loaded.location("exclude", number).error(f"this leaves out {what}")

    def notes(self) -> list[str]:
        """Return a line for each exclusion that nothing matched so far."""
        return [
            f"{self.loaded.location('exclude', number)}: no variant matches, nothing is left out"
            for number in range(len(self.exclusions))
            if number not in self._used
        ]

    def _excluding(self, config: RunConfig, match: Match) -> list[int]:
        """Return the numbers of the exclusions that hold, and remember them as used."""
        hit = [
            number
            for number, conditions in enumerate(self.exclusions)
            if all(holds(config, match) for holds in conditions)
        ]
        self._used.update(hit)
        return hit

    def conditions(self, when: Mapping[str, Any], location: SourceLocation) -> list[Condition]:
        """Return what holds for the combinations that have these axis values."""
        if not when:
            raise location.error("expected axis values, got none")
        return [self._condition(axis, value, location.child(axis)) for axis, value in when.items()]

    def _condition(self, axis: str, value: Any, location: SourceLocation) -> Condition:
        if axis == MATCH_AXIS:
            wanted = match_value(value, location)
            return lambda _, match: match == wanted
        if axis not in self.axes and axis.split(".")[0] not in (*FAMILIES, *SECTIONS):
            raise location.error(f"unknown axis '{axis}'{nearest(axis, self.axes)}")
        path = tuple(axis.split("."))
        builder = self.start.copy()
        builder.assign(path, value, location)
        target = value_at(build_config(builder), path, self.registry)
        named_only = isinstance(value, str) and path[0] in FAMILIES

        def holds(config: RunConfig, _: Match) -> bool:
            found = value_at(config, path, self.registry)
            return bool(_names(found) == _names(target) if named_only else found == target)

        return holds


def _names(value: Any) -> Any:
    """Strip options: names by role, or one name."""
    if isinstance(value, Mapping) and set(value) == set(ROLES):
        return {role: value[role]["name"] for role in ROLES}
    return value["name"] if isinstance(value, Mapping) else value
