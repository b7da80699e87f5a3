"""How many places an entry is defined for: more is refused by a plan, and by a running model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headtohead.errors import HeadToHeadError
from headtohead.plugins.positional import Part, Positional
from headtohead.schema.run_config import RunConfig

SIDES: Mapping[str, tuple[str, ...]] = {"encoder": ("source",), "decoder": ("target",), "cross": ("source", "target")}
"""The sentences whose places an entry of a role is told."""

OPTIONS = ("max_length", "max_len")
"""What entries call the option that sets their bound."""


@dataclass(frozen=True)
class Bound:
    """The most places, or rows of a batch, that an entry of a role knows.

    ``option`` is what the reader sets to have more, such as ``positional.encoder.max_length``; None
    where the entry has no such option.
    """

    name: str
    role: str
    most: int
    counts: str
    option: str | None

    def reason(self, config: RunConfig, longest: Mapping[str, int]) -> str | None:
        """Return why data and batches of a configuration are beyond it, or None."""
        if self.counts == "rows":
            train, evaluate = config.train, config.evaluate
            rows = max(train.batch_size or train.batch_tokens, evaluate.batch_size)
            return (
                None
                if rows <= self.most
                else (
                    f"{self.name} counts rows of a batch and has {self.most}, and a batch may have "
                    f"{rows} sentences; set train.batch_size and evaluate.batch_size to at most "
                    f"{self.most}"
                )
            )
        for side in SIDES[self.role]:
            tokens = longest.get(side, 0)
            if tokens > self.most:
                return (
                    f"a {side} of {tokens} tokens is longer than the {self.most} places of "
                    f"{self.name}; {self._way_out(tokens)}"
                )
        return None

    def check(self, places: int, rows: int) -> None:
        """Refuse a pass that is beyond it.

        Raises:
            HeadToHeadError: Naming the first place, or row, that has none.
        """
        found = rows if self.counts == "rows" else places
        if found > self.most:
            what = "row" if self.counts == "rows" else "place"
            raise HeadToHeadError(
                f"{what} {found} is beyond the {self.most} {self.counts} of {self.name}; {self._way_out(found)}"
            )

    def _way_out(self, needed: int) -> str:
        if self.option is None:
            return f"take sentences of at most {self.most} tokens"
        return f"set {self.option} to at least {needed}"


def find_bound(part: type[Part], options: object, family: str, role: str) -> Bound | None:
    """Return the bound of an entry that is asked with these options, or None if it has none."""
    chosen = part.Options.model_validate(options)
    most = part.limit(chosen)
    if most is None:
        return None
    by_row = issubclass(part, Positional) and part.index(chosen) == "row"
    option = next((one for one in OPTIONS if one in part.Options.model_fields), None)
    return Bound(
        part.entry_name, role, most, "rows" if by_row else "places", f"{family}.{role}.{option}" if option else None
    )
