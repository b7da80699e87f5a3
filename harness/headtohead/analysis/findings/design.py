"""Rules on the design: equal variants, the tuning sweep, looks at added seeds, pitfalls of the settings."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.analysis.findings.finding import MAX_NAMED, Sentence, caution, note, titles
from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.config.labels import listed
from headtohead.config.labels import text as value_text
from headtohead.storage.metrics import counted

EQUAL = "{variant} and {trained} are the same by construction; they were trained once."
EQUAL_BECAUSE = (
    "{variant} and {trained} are the same by construction: {reason}; they were trained once."
)


@note
def equal_by_construction(analysis: Analysis) -> Iterator[Sentence]:
    """Name each variant that was not trained, because it is the same as another, with the reason if there is one."""
    by_slug = analysis.frames.by_slug
    for variant in by_slug.values():
        if not variant.equal_to:
            continue
        template = EQUAL_BECAUSE if variant.equal_reason else EQUAL
        text = template.format(
            variant=variant.title,
            trained=by_slug[variant.equal_to].title,
            reason=variant.equal_reason,
        )
        yield Sentence(text, (variant.slug,))


EDGE = (
    "The best value of {fields} for {variants} is at the edge of the sweep or beyond; a better one may lie outside. "
    "Add values to tune."
)


@caution
def tuned_at_the_edge(analysis: Analysis) -> Iterator[Sentence]:
    """Name the variants of the study with a tuned value at the edge of the sweep, and the fields; in one sentence."""
    tuning = analysis.frames.record.tuning
    if tuning is None:
        return
    slugs = []
    fields = set[str]()
    for slug, tuned in tuning.variants.items():
        if tuned.at_the_edge and slug in analysis.frames.by_slug:
            slugs.append(slug)
            fields.update(tuned.at_the_edge)
    if slugs:
        text = EDGE.format(fields=listed(sorted(fields)), variants=titles(analysis, slugs))
        yield Sentence(text, tuple(slugs))


COARSE = "The sweep may have missed the best setting of a variant: {reason}."


@caution
def coarse_sweep(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if the sweep has too few values."""
    tuning = analysis.frames.record.tuning
    if tuning and tuning.coarse:
        yield Sentence(COARSE.format(reason=tuning.coarse))


ONE_TUNING_SEED = (
    "Each value of {fields} was tried with one seed, so intervals leave out that other seeds could have chosen other "
    "values. Set tune_seeds: 2."
)


@caution
def tuned_with_one_seed(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if a single seed chose the tuned values."""
    tuning = analysis.frames.record.tuning
    if tuning and tuning.variants and len(tuning.seeds) == 1:
        yield Sentence(ONE_TUNING_SEED.format(fields=listed(tuning.fields)))


OTHER_LENGTH = (
    "The values of {fields} were chosen with train.epochs {epochs}, which is not the length of this study; others can "
    "be better at its length. Leave out tune_epochs."
)


@caution
def tuned_at_another_length(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if the tuning runs had another length than those that are compared."""
    tuning = analysis.frames.record.tuning
    if tuning and tuning.epochs is not None:
        text = OTHER_LENGTH.format(fields=listed(tuning.fields), epochs=value_text(tuning.epochs))
        yield Sentence(text)


LATE_LOOKS = (
    "The planned number of seeds was changed after results existed, on {date}: wrong verdicts can be more frequent "
    "than 5 %."
)


@caution
def late_looks(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if the number of seeds was changed after results existed."""
    record = analysis.frames.record.looks
    if record is not None and analysis.late_looks:
        yield Sentence(LATE_LOOKS.format(date=record.since[:10]))


PITFALLS = "Pitfalls in {affected} of {variants} variants: {pitfalls}."


@caution
def pitfalls(analysis: Analysis) -> Iterator[Sentence]:
    """Name the pitfalls of all variants, each once, and the number of variants that have one; in one sentence."""
    by_slug = analysis.frames.by_slug
    affected = [variant for variant in by_slug.values() if variant.pitfalls]
    if not affected:
        return
    names = dict.fromkeys(pitfall.name for variant in affected for pitfall in variant.pitfalls)
    text = PITFALLS.format(
        affected=len(affected),
        variants=len(by_slug),
        pitfalls=listed(list(names), most=MAX_NAMED),
    )
    yield Sentence(text, tuple(variant.slug for variant in affected))


LOOKS = (
    "The study is judged at {planned} seeds. The intervals of each look are simultaneous at {level:.4g} %, so that "
    "those of all looks are at 95 %. {taken} of {looks} looks taken: {outcome}."
)


@note
def stated_looks(analysis: Analysis) -> Iterator[Sentence]:
    """State the looks of a study with sequential seeds, and what the last one decided; nothing for other studies.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    status = analysis.looks
    if status is None:
        return
    planned = list(map(str, status.looks.seeds))
    text = LOOKS.format(
        planned=listed(planned),
        level=100 * (1 - status.level),
        taken=len(status.taken),
        looks=len(planned),
        outcome=_outcome(status),
    )
    yield Sentence(text)


LOOK = "look {number} of {looks}, {seeds} seeds: {outcome}"


def looks_line(status: LooksStatus) -> str:
    """Return the number of the look, the undecided contrasts, and the next look or why there is none."""
    number = sum(seeds <= status.seeds for seeds in status.looks.seeds)
    return LOOK.format(
        number=number,
        looks=len(status.looks.seeds),
        seeds=status.seeds,
        outcome=_outcome(status),
    )


NO_RESULT = "runs of this look have no result yet"
NEXT = "{contrasts} undecided, next look at {seeds} seeds"
LAST = "stopped at the maximum of {seeds} seeds, {contrasts} undecided"
UNTESTED = "stopped; {contrasts} cannot be tested"
DECIDED = "stopped because every main contrast is decided"


def _outcome(status: LooksStatus) -> str:
    """Return the state of the current look as a clause: the first of these that holds.

    Runs have no result yet; contrasts are undecided and a look follows; contrasts are undecided after the last look;
    contrasts cannot be tested; every main contrast is decided.
    """
    undecided = counted(len(status.undecided), "contrast")
    if not status.complete:
        return NO_RESULT
    if status.next is not None:
        return NEXT.format(contrasts=undecided, seeds=status.next)
    if status.undecided:
        return LAST.format(contrasts=undecided, seeds=status.seeds)
    if status.untested:
        return UNTESTED.format(contrasts=counted(len(status.untested), "contrast"))
    return DECIDED
