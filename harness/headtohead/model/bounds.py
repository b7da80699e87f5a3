"""Maximum lengths of entries, checked by the planner and in every forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headtohead.errors import HeadToHeadError
from headtohead.plugins.component import Component
from headtohead.plugins.entry import Options
from headtohead.plugins.positional import Positional
from headtohead.schema.run_config import RunConfig

SIDES: Mapping[str, tuple[str, ...]] = {"encoder": ("source",), "decoder": ("target",), "cross": ("source", "target")}
"""Sides of the positions that an entry of a role receives."""


@dataclass(frozen=True)
class Bound:
    """The maximum number of positions, or batch rows, of an entry in a role.

    Args:
        name: Name of the entry.
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        most: The maximum.
        counts: ``"positions"`` or ``"rows"``.
        option: Configuration field that raises the maximum, such as ``positional.encoder.max_length``;
            None if the entry has no such option.
    """

    name: str
    role: str
    most: int
    counts: str
    option: str | None

    def reason(self, config: RunConfig, longest: Mapping[str, int]) -> str | None:
        """Return why sentences or batches of a configuration exceed the maximum, or None."""
        if self.counts == "rows":
            train, evaluate = config.train, config.evaluate
            rows = max(train.batch_size or train.batch_tokens, evaluate.batch_size)
            if rows <= self.most:
                return None
            return (
                f"{self.name} supports {self.most} batch rows, but a batch may have {rows} sentences; set "
                f"train.batch_size and evaluate.batch_size to at most {self.most}"
            )
        for side in SIDES[self.role]:
            tokens = longest.get(side, 0)
            if tokens > self.most:
                return (
                    f"a {side} of {tokens} tokens is longer than the {self.most} positions of "
                    f"{self.name}; {self._fix(tokens)}"
                )
        return None

    def check(self, length: int, rows: int) -> None:
        """Check the length and the batch rows of a forward pass.

        Raises:
            HeadToHeadError: If they exceed the maximum.
        """
        number = rows if self.counts == "rows" else length
        if number > self.most:
            unit = self.counts.removesuffix("s")
            raise HeadToHeadError(
                f"{unit} {number} is beyond the {self.most} {self.counts} of {self.name}; {self._fix(number)}"
            )

    def _fix(self, needed: int) -> str:
        if self.option is None:
            return f"use sentences of at most {self.most} tokens"
        return f"set {self.option} to at least {needed}"


def find_bound(part: type[Component], options: Options, family: str, role: str) -> Bound | None:
    """Return the maximum length of an entry with these options, or None if it has none."""
    most = part.limit(options)
    if most is None:
        return None
    by_row = issubclass(part, Positional) and part.index(options) == "row"
    fields = (
        f"{family}.{role}.{name}"
        for name, value in options
        if type(value) is int and part.limit(options.model_copy(update={name: value + 1})) == most + 1
    )
    return Bound(part.entry_name, role, most, "rows" if by_row else "positions", next(fields, None))
