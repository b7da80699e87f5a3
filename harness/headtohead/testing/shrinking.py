"""Smallest counterexample of a violation: sizes shrink while the invariant stays violated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from headtohead.testing.invariant import Invariant
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import changed
from headtohead.testing.verdict import Verdict

MAX_CHECKS = 60
"""Largest number of subjects that are checked for one counterexample."""

MIN_EFFECT = 0.01
"""Smallest accepted size of a violation, relative to the original one."""


def shrink(invariant: Invariant, subject: Subject, verdict: Verdict) -> Verdict:
    """Return the verdict with the smallest counterexample that was found, after its sizes.

    Args:
        invariant: The violated invariant.
        subject: The subject that violates it.
        verdict: The invariant's verdict on ``subject``.
    """
    if verdict.number is None and verdict.counterexample is None:
        return verdict  # the check raised an exception, whose message is the counterexample
    counterexample, candidates = verdict.counterexample or verdict.reason, _smaller(subject)
    for _ in range(MAX_CHECKS):
        smaller = next(candidates, None)
        if smaller is None:
            break
        violation = _violation(invariant, smaller, verdict)
        if violation is not None:
            subject, counterexample = smaller, violation.counterexample or violation.reason
            candidates = _smaller(subject)
    model, (source, target) = subject.config.model, subject.longest
    sizes = (
        f"source tokens {source}, target tokens {target}, sentences {len(subject.lengths[0])}, "
        f"members {len(subject.seeds)}, layers {model.encoder_layers} + {model.decoder_layers}, heads {model.heads}, "
        f"width {model.d_model}"
    )
    return replace(verdict, counterexample=f"{sizes}: {counterexample}")


def _violation(invariant: Invariant, subject: Subject, before: Verdict) -> Verdict | None:
    """Return the verdict if it is still an unexpected violation of comparable size."""
    try:
        verdict = invariant(subject)
    except Exception:
        return None
    if verdict.outcome != "violated":
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
            yield subject.resized(seeds=(seed,), lengths=lengths[member : member + 1])
    if len(lengths[0]) > 1:
        for sentence in range(len(lengths[0])):
            yield subject.resized(lengths=tuple(row[:sentence] + row[sentence + 1 :] for row in lengths))
    for heads, width in ((1, model.d_model), (1, 4), (2, 8), (2, model.d_model)):
        if heads <= model.heads and width <= model.d_model and (heads, width) != (model.heads, model.d_model):
            yield subject.resized(config=changed(config, model={"heads": heads, "d_model": width}))
    longest = subject.longest
    for side in (0, 1):
        for limit in sorted({2, longest[side] - 1}):
            if 0 < limit < longest[side]:
                most = (limit, longest[1]) if side == 0 else (longest[0], limit)
                cut = (tuple((min(s, most[0]), min(t, most[1])) for s, t in row) for row in lengths)
                yield subject.resized(lengths=tuple(cut))
