"""The smallest example of a breach: sizes are cut down as long as the invariant stays broken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headtohead.data import PreparedData
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariant import Invariant
from headtohead.testing.subject import Lengths, Subject
from headtohead.testing.verdict import Verdict

PATIENCE = 60
"""Subjects that are asked at most to make one example smaller."""


FAINT = 0.01
"""Share of the first number below which a smaller example shows too little."""


@dataclass(frozen=True)
class Sizes:
    """A subject's sizes, all of which can be made smaller."""

    config: RunConfig
    seeds: tuple[int, ...]
    lengths: Lengths

    def subject(self, data: PreparedData) -> Subject:
        return Subject(self.config, self.seeds, data, self.lengths)

    @property
    def words(self) -> str:
        """Return the sizes as a reader counts them."""
        model = self.config.model
        source, target = (max(map(max, side)) for side in (self.lengths.source, self.lengths.target))
        layers = model.encoder_layers, model.decoder_layers
        counted = [
            _counted(source, "source word"),
            _counted(target, "target token"),
            _counted(len(self.lengths.source[0]), "sentence"),
            f"{layers[0]} + {layers[1]} layers",
            _counted(model.heads, "head"),
            f"width {model.d_model}",
        ]
        if len(self.seeds) > 1:
            counted.insert(3, _counted(len(self.seeds), "member"))
        return ", ".join(counted)


def smallest(invariant: Invariant, subject: Subject, verdict: Verdict) -> Verdict:
    """Return a broken verdict with the smallest example that shows it.

    Args:
        invariant: The one that is broken.
        subject: Of which it is broken.
        verdict: What it said there.
    """
    if verdict.number is None and verdict.shown is None:
        return verdict  # a plugin that raised says where in its own words
    sizes = Sizes(subject.config, subject.seeds, _of_seeds(subject))
    shown, asked = verdict.shown or verdict.reason, 0
    progress = True
    while progress and asked < PATIENCE:
        progress = False
        for smaller in _smaller(sizes):
            asked += 1
            found = _ask(invariant, smaller.subject(subject.data), verdict)
            if found is not None:
                sizes, shown, progress = smaller, found.shown or found.reason, True
                break
            if asked >= PATIENCE:
                break
    return replace(verdict, shown=f"{sizes.words}: {shown}")


def _ask(invariant: Invariant, subject: Subject, before: Verdict) -> Verdict | None:
    """Return the verdict if the invariant is still broken, no less visibly, and nothing raises."""
    try:
        verdict = invariant(subject)
    except Exception:
        return None
    if verdict.state != "broken" or verdict.because is not None:
        return None
    if before.number is None or verdict.number is None:
        return verdict if before.number is verdict.number else None
    faint = abs(verdict.number) < FAINT * abs(before.number)
    return None if faint or math.isnan(verdict.number) != math.isnan(before.number) else verdict


def _smaller(sizes: Sizes) -> Iterator[Sizes]:
    """Yield sizes with one number smaller, the greatest steps first."""
    model, lengths = sizes.config.model, sizes.lengths
    for field in ("decoder_layers", "encoder_layers"):
        if getattr(model, field) > 1:
            yield _resized(sizes, **{field: 1})
    if len(sizes.seeds) > 1:
        for kept in range(len(sizes.seeds)):
            one = slice(kept, kept + 1)
            yield replace(sizes, seeds=sizes.seeds[one], lengths=Lengths(lengths.source[one], lengths.target[one]))
    rows = len(lengths.source[0])
    for left_out in range(rows if rows > 1 else 0):
        yield replace(sizes, lengths=_without(lengths, left_out))
    for heads, width in ((1, model.d_model), (1, 4), (2, 8), (2, model.d_model)):
        if heads <= model.heads and width <= model.d_model and (heads, width) != (model.heads, model.d_model):
            yield _resized(sizes, heads=heads, d_model=width)
    for side in ("source", "target"):
        longest = max(map(max, getattr(lengths, side)))
        for wanted in sorted({2, longest - 1}):
            if 0 < wanted < longest:
                cut = tuple(tuple(min(one, wanted) for one in row) for row in getattr(lengths, side))
                yield replace(sizes, lengths=replace(lengths, **{side: cut}))
    for side in ("source", "target"):
        if max(map(max, getattr(lengths, side))) == 2:
            ones = tuple((1,) * len(row) for row in getattr(lengths, side))
            yield replace(sizes, lengths=replace(lengths, **{side: ones}))


def _resized(sizes: Sizes, **fields: int) -> Sizes:
    model = sizes.config.model.model_copy(update=fields)
    return replace(sizes, config=sizes.config.model_copy(update={"model": model}))


def _without(lengths: Lengths, row: int) -> Lengths:
    """Leave out one sentence of every member."""
    source, target = (tuple(one[:row] + one[row + 1 :] for one in side) for side in (lengths.source, lengths.target))
    return Lengths(source, target)


def _of_seeds(subject: Subject) -> Lengths:
    """Return the lengths with one entry per member."""
    lengths, members = subject.lengths, range(len(subject.seeds))
    return Lengths(
        tuple(lengths.source[one % len(lengths.source)] for one in members),
        tuple(lengths.target[one % len(lengths.target)] for one in members),
    )


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
