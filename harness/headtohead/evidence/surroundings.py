"""The configurations in which an entry is asked whether it keeps the invariants.

An entry of one family stands beside plain choices of the others, and beside every other registered
choice, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headtohead.experiment.draft import FAMILIES
from headtohead.experiment.schema import RunConfig
from headtohead.experiment.undefined import undefined_reason
from headtohead.model.geometry import only_length
from headtohead.plugins import Registered, Registry
from headtohead.testing import tiny_config
from headtohead.testing.subject import SOURCE_LENGTHS, TARGET_LENGTHS

PLAIN = "plain choices"


def surroundings(one: Registered, registry: Registry) -> Iterator[tuple[str, RunConfig]]:
    """Yield every configuration in which an entry is defined, with what stands beside it."""
    choices: list[tuple[str, dict[str, Any]]] = [(PLAIN, {})]
    choices += [
        (f"{family} {name}", {family: name})
        for family in FAMILIES if family != one.family
        for name in sorted(registry.entries[family])
    ]  # fmt: skip
    for beside, others in choices:
        names: dict[str, Any] = {one.family: one.name, **others}
        config = tiny_config(**names)
        if undefined_reason(config, _longest(config), registry) is None:
            yield beside, config


def _longest(config: RunConfig) -> dict[str, int]:
    """Return the tokens of the sentences that will be asked about; the last is not read."""
    read = only_length(config) or max(max(row) for row in TARGET_LENGTHS)
    return {"source": max(max(row) for row in SOURCE_LENGTHS), "target": read + 1}
