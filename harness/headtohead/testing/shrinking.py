"""Smallest counterexample of a violation: sizes shrink while the invariant stays violated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headtohead.data import PreparedData
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariant import Invariant
from headtohead.testing.subject import Lengths, Subject
from headtohead.testing.verdict import Verdict

MAX_CHECKS = 60
"""Largest number of subjects that are checked for one counterexample."""

MIN_EFFECT = 0.01
"""Smallest accepted size of a violation, relative to the original one."""


@dataclass(frozen=True)
class SubjectSizes:
    """The sizes of a subject, all of which can shrink."""

    config: RunConfig
    seeds: tuple[int, ...]
    lengths: Lengths

    def subject(self, data: PreparedData) -> Subject:
        return Subject(self.config, self.seeds, data, self.lengths)

    def __str__(self) -> str:
        model = self.config.model
        source, target = (max(map(max, side)) for side in (self.lengths.source, self.lengths.target))
        layers = model.encoder_layers, model.decoder_layers
        counts = [
            _count(source, "source token"),
            _count(target, "target token"),
            _count(len(self.lengths.source[0]), "sentence"),
            f"{layers[0]} + {layers[1]} layers",
            _count(model.heads, "head"),
            f"width {model.d_model}",
        ]
        if len(self.seeds) > 1:
            counts.insert(3, _count(len(self.seeds), "member"))
        return ", ".join(counts)


def shrink(invariant: Invariant, subject: Subject, verdict: Verdict) -> Verdict:
    """Return the verdict with the smallest counterexample that was found, after its sizes.

    Args:
        invariant: The violated invariant.
        subject: The subject that violates it.
        verdict: The invariant's verdict on ``subject``.
    """
    if verdict.number is None and verdict.counterexample is None:
        return verdict  # the check raised an exception, whose message is the counterexample
    sizes = SubjectSizes(subject.config, subject.seeds, _lengths_per_member(subject))
    counterexample, checks = verdict.counterexample or verdict.reason, 0
    progress = True
    while progress and checks < MAX_CHECKS:
        progress = False
        for smaller in _smaller(sizes):
            checks += 1
            violation = _violation(invariant, smaller.subject(subject.data), verdict)
            if violation is not None:
                sizes, counterexample, progress = smaller, violation.counterexample or violation.reason, True
                break
            if checks >= MAX_CHECKS:
                break
    return replace(verdict, counterexample=f"{sizes}: {counterexample}")


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


def _smaller(sizes: SubjectSizes) -> Iterator[SubjectSizes]:
    """Yield sizes with a single size reduced, the largest reductions first."""
    model, lengths = sizes.config.model, sizes.lengths
    for field in ("decoder_layers", "encoder_layers"):
        if getattr(model, field) > 1:
            yield _resized(sizes, **{field: 1})
    if len(sizes.seeds) > 1:
        for member in range(len(sizes.seeds)):
            only = slice(member, member + 1)
            yield replace(sizes, seeds=sizes.seeds[only], lengths=Lengths(lengths.source[only], lengths.target[only]))
    sentences = len(lengths.source[0])
    for sentence in range(sentences if sentences > 1 else 0):
        yield replace(sizes, lengths=_without_sentence(lengths, sentence))
    for heads, width in ((1, model.d_model), (1, 4), (2, 8), (2, model.d_model)):
        if heads <= model.heads and width <= model.d_model and (heads, width) != (model.heads, model.d_model):
            yield _resized(sizes, heads=heads, d_model=width)
    for side in ("source", "target"):
        longest = max(map(max, getattr(lengths, side)))
        for limit in sorted({2, longest - 1}):
            if 0 < limit < longest:
                limited = tuple(tuple(min(length, limit) for length in member) for member in getattr(lengths, side))
                yield replace(sizes, lengths=replace(lengths, **{side: limited}))
    for side in ("source", "target"):
        if max(map(max, getattr(lengths, side))) == 2:
            ones = tuple((1,) * len(member) for member in getattr(lengths, side))
            yield replace(sizes, lengths=replace(lengths, **{side: ones}))


def _resized(sizes: SubjectSizes, **fields: int) -> SubjectSizes:
    model = sizes.config.model.model_copy(update=fields)
    return replace(sizes, config=sizes.config.model_copy(update={"model": model}))


def _without_sentence(lengths: Lengths, sentence: int) -> Lengths:
    source, target = (
        tuple(member[:sentence] + member[sentence + 1 :] for member in side)
        for side in (lengths.source, lengths.target)
    )
    return Lengths(source, target)


def _lengths_per_member(subject: Subject) -> Lengths:
    lengths, members = subject.lengths, range(len(subject.seeds))
    return Lengths(
        tuple(lengths.source[member % len(lengths.source)] for member in members),
        tuple(lengths.target[member % len(lengths.target)] for member in members),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
