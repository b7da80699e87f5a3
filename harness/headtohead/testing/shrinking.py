"""Smallest counterexample of a violation: sizes shrink while the invariant stays violated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from headtohead.testing.invariant import Invariant
from headtohead.testing.subject import Lengths, Subject
from headtohead.testing.tiny import changed
from headtohead.testing.verdict import Verdict

MAX_CHECKS = 60
"""Largest number of subjects that are checked for one counterexample."""

MIN_EFFECT = 0.01
"""Smallest accepted size of a violation, relative to the original one."""

Row = tuple[int, ...]


def shrink(invariant: Invariant, subject: Subject, verdict: Verdict) -> Verdict:
    """Return the verdict with the smallest counterexample that was found, after its sizes.

    Args:
        invariant: The violated invariant.
        subject: The subject that violates it.
        verdict: The invariant's verdict on ``subject``.
    """
    if verdict.number is None and verdict.counterexample is None:
        return verdict  # the check raised an exception, whose message is the counterexample
    lengths, members = subject.lengths, range(len(subject.seeds))
    smallest = subject.resized(
        lengths=Lengths(
            tuple(lengths.source[member % len(lengths.source)] for member in members),
            tuple(lengths.target[member % len(lengths.target)] for member in members),
        )
    )
    counterexample, checks = verdict.counterexample or verdict.reason, 0
    progress = True
    while progress and checks < MAX_CHECKS:
        progress = False
        for smaller in _smaller(smallest):
            checks += 1
            violation = _violation(invariant, smaller, verdict)
            if violation is not None:
                smallest, counterexample, progress = smaller, violation.counterexample or violation.reason, True
                break
            if checks >= MAX_CHECKS:
                break
    return replace(verdict, counterexample=f"{_sizes(smallest)}: {counterexample}")


def _sizes(subject: Subject) -> str:
    model, lengths = subject.config.model, subject.lengths
    counts = [
        _count(max(map(max, lengths.source)), "source token"),
        _count(max(map(max, lengths.target)), "target token"),
        _count(len(lengths.source[0]), "sentence"),
        *([_count(len(subject.seeds), "member")] if len(subject.seeds) > 1 else []),
        f"{model.encoder_layers} + {model.decoder_layers} layers",
        _count(model.heads, "head"),
        f"width {model.d_model}",
    ]
    return ", ".join(counts)


def _violation(invariant: Invariant, subject: Subject, before: Verdict) -> Verdict | None:
    """Return the verdict if it is still an unexpected violation of comparable size."""
    try:
        verdict = invariant(subject)
    except Exception:
        return None
    if verdict.state != "violated" or verdict.cause is not None:
        return None
    if before.number is None or verdict.number is None:
        return verdict if before.number is verdict.number else None
    too_small = abs(verdict.number) < MIN_EFFECT * abs(before.number)
    return None if too_small or math.isnan(verdict.number) != math.isnan(before.number) else verdict


def _smaller(subject: Subject) -> Iterator[Subject]:
    """Yield subjects with a single size reduced, the largest reductions first."""
    config, lengths = subject.config, subject.lengths
    model = config.model
    for field in ("decoder_layers", "encoder_layers"):
        if getattr(model, field) > 1:
            yield subject.resized(config=changed(config, model={field: 1}))
    if len(subject.seeds) > 1:
        for member, seed in enumerate(subject.seeds):
            yield subject.resized(seeds=(seed,), lengths=Lengths((lengths.source[member],), (lengths.target[member],)))
    if len(lengths.source[0]) > 1:
        for sentence in range(len(lengths.source[0])):
            yield subject.resized(lengths=_mapped(lengths, partial(_without, at=sentence)))
    for heads, width in ((1, model.d_model), (1, 4), (2, 8), (2, model.d_model)):
        if heads <= model.heads and width <= model.d_model and (heads, width) != (model.heads, model.d_model):
            yield subject.resized(config=changed(config, model={"heads": heads, "d_model": width}))
    longest = {side: max(map(max, getattr(lengths, side))) for side in ("source", "target")}
    limits = [(side, limit) for side in longest for limit in sorted({2, longest[side] - 1})]
    limits += [(side, 1) for side in longest if longest[side] == 2]
    for side, limit in limits:
        if 0 < limit < longest[side]:
            cut = _mapped(lengths, partial(_limited, limit=limit))
            yield subject.resized(lengths=replace(lengths, **{side: getattr(cut, side)}))


def _without(row: Row, at: int) -> Row:
    return row[:at] + row[at + 1 :]


def _limited(row: Row, limit: int) -> Row:
    return tuple(min(length, limit) for length in row)


def _mapped(lengths: Lengths, function: Callable[[Row], Row]) -> Lengths:
    return Lengths(tuple(map(function, lengths.source)), tuple(map(function, lengths.target)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
