"""Rules on the design: equal variants, the tuning sweep, looks at added seeds, pitfalls of the settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headtohead.analysis.findings.finding import MAX_NAMED, Sentence, caution, note, of_titles
from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.config.labels import listed
from headtohead.config.labels import text as value_text
from headtohead.config.phrases import axis_name
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


EDGE = "The best {fields} {of_variants} may lie outside the sweep, whose best value is at its edge. Add values to tune."

EDGE_LIMIT = "a better {fields} may lie outside the sweep"


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
        names = _field_names(fields)
        text = EDGE.format(fields=names, of_variants=of_titles(analysis, slugs))
        limit = EDGE_LIMIT.format(fields=names)
        yield Sentence(text, tuple(slugs), limit)


def _field_names(fields: Collection[str]) -> str:
    """Return what people call tuned fields."""
    return listed([axis_name(field.split(".")) for field in sorted(fields)])


COARSE = "The sweep may have missed the best setting of a variant: {reason}."

COARSE_LIMIT = "the sweep is coarse"


@caution
def coarse_sweep(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if the sweep has too few values."""
    tuning = analysis.frames.record.tuning
    if tuning and tuning.coarse:
        yield Sentence(COARSE.format(reason=tuning.coarse), limit=COARSE_LIMIT)


ONE_TUNING_SEED = (
    "Each value of the {fields} was tried with one seed, so intervals leave out that other seeds could have chosen "
    "other values. Set tune_seeds: 2."
)

ONE_TUNING_SEED_LIMIT = "a single seed chose the {fields}"


@caution
def tuned_with_one_seed(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if a single seed chose the tuned values."""
    tuning = analysis.frames.record.tuning
    if tuning and tuning.variants and len(tuning.seeds) == 1:
        fields = _field_names(tuning.fields)
        limit = ONE_TUNING_SEED_LIMIT.format(fields=fields)
        yield Sentence(ONE_TUNING_SEED.format(fields=fields), limit=limit)


OTHER_LENGTH = (
    "The values of the {fields} were chosen with train.epochs {epochs}, which is not the length of this study; others "
    "can be better at its length. Leave out tune_epochs."
)

OTHER_LENGTH_LIMIT = "the {fields} was tuned at another length"


@caution
def tuned_at_another_length(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if the tuning runs had another length than those that are compared."""
    tuning = analysis.frames.record.tuning
    if tuning and tuning.epochs is not None:
        fields = _field_names(tuning.fields)
        text = OTHER_LENGTH.format(fields=fields, epochs=value_text(tuning.epochs))
        limit = OTHER_LENGTH_LIMIT.format(fields=fields)
        yield Sentence(text, limit=limit)


LATE_LOOKS = (
    "The planned number of seeds was changed after results existed, on {date}: wrong verdicts can be more frequent "
    "than 5 %."
)

LATE_LOOKS_LIMIT = "the number of seeds was changed after results existed"


@caution
def late_looks(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if the number of seeds was changed after results existed."""
    record = analysis.frames.record.looks
    if record is not None and analysis.late_looks:
        yield Sentence(LATE_LOOKS.format(date=record.since[:10]), limit=LATE_LOOKS_LIMIT)


LATE_FIELDS = "Chosen after results existed: {fields}. Intervals and adjusted p assume a question fixed before."
LATE_FIELDS_LIMIT = "{fields} chosen after results existed"


@caution
def late_fields(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if the seeds, the contrasts or another part of the question were chosen after results existed."""
    changed = analysis.frames.record.late_fields
    if changed:
        limit = LATE_FIELDS_LIMIT.format(fields=listed([*changed]))
        dated = [f"{field} ({date[:10]})" for field, date in changed.items()]
        yield Sentence(LATE_FIELDS.format(fields=listed(dated)), limit=limit)


PITFALLS = "Pitfalls in {affected} of {variants} variants: {pitfalls}."


@caution
def pitfalls(analysis: Analysis) -> Iterator[Sentence]:
    """State how many variants have a pitfall, and name the different pitfalls, in one sentence.

    The first `MAX_NAMED` are named, and the number of several others.
    """
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
    """State the looks of a study with sequential seeds, and the state of the current one; nothing for others.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    status = analysis.looks
    if status is None:
        return
    planned = list(map(str, status.looks.seeds))
    text = LOOKS.format(
        planned=listed(planned),
        level=100 * (1 - status.alpha_per_look),
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
    if status.next_seeds is not None:  # None unless contrasts are undecided
        return NEXT.format(contrasts=undecided, seeds=status.next_seeds)
    if status.undecided:
        return LAST.format(contrasts=undecided, seeds=status.seeds)
    if status.untested:
        return UNTESTED.format(contrasts=counted(len(status.untested), "contrast"))
    return DECIDED
