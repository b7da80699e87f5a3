"""Notes on a plan: what a reader of its report should know before a run has finished. Each note is a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headtohead.config.labels import listed, text
from headtohead.planning.lengths import length_notes
from headtohead.planning.plan import Plan
from headtohead.planning.variants import comparison_group
from headtohead.plugins.families import FAMILIES
from headtohead.plugins.registry import FILE, current
from headtohead.storage.record import leaves

MAX_REASONS = 3
"""Maximum number of excluded variants whose reason a note gives."""


def notes_of(plan: Plan) -> list[str]:
    """Return the notes on a plan, in the order of `RULES`."""
    return [note for rule in RULES for note in rule(plan)]


UNUSED_FILE = "no variant has an entry of '{file}': {entries}; name one in base or in the design to compare it"


def unused_plugin_files(plan: Plan) -> list[str]:
    """Return a sentence on each plugin file of this process that has entries for configurations, but none in the plan.

    It is no note of the plan, because the record does not depend on what the process has loaded. A file with an entry
    of another family, such as a recipe or a logger, can be in use without a variant that has it.
    """
    variants = [*plan.variants]
    if plan.tuning is not None:
        variants += plan.tuning.plan.variants
    used = {entry.label for variant in variants for entry in variant.plugins}
    by_file: dict[str, list[str]] = {}
    other_files = set()
    for entry in current().all():
        if entry.distribution != FILE:
            continue
        by_file.setdefault(entry.module, []).append(entry.label)
        if not FAMILIES[entry.family].place:
            other_files.add(entry.module)
    sentences = []
    for file, labels in by_file.items():
        if used.isdisjoint(labels) and file not in other_files:
            sentences.append(UNUSED_FILE.format(file=file, entries=listed(labels)))
    return sentences


def count_are(number: int, noun: str) -> str:
    """Return the subject and verb of a sentence: ``1 run is``, ``2 runs are``."""
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"


def _design_and_matching(plan: Plan) -> Iterator[str]:
    yield from plan.design.notes
    yield from plan.matching_notes


def _nothing_compared(plan: Plan) -> Iterator[str]:
    if not plan.loaded.file.design or len(plan.variants) > 1:
        return
    sentences = ["the design has only the baseline, so nothing is compared"]
    for excluded in plan.design.excluded[:MAX_REASONS]:
        sentences.append(f"{excluded.title} is excluded: {excluded.reason}")
    yield "; ".join(sentences)


def _incomplete_pairs(plan: Plan) -> Iterator[str]:
    for contrast in plan.contrasts:
        if contrast.missing:
            verb = "is" if contrast.missing == 1 else "are"
            yield (
                f"{contrast.name} is averaged over {len(contrast.settings)} complete pairs; "
                f"{contrast.missing} {verb} incomplete and excluded"
            )


def _reused_runs(plan: Plan) -> Iterator[str]:
    reused = [run for run in plan.runs if run.reused_from]
    if reused:
        yield f"{count_are(len(reused), 'run')} reused from other experiments"


def _stale_runs(plan: Plan) -> Iterator[str]:
    stale = [run for run in plan.runs if run.stale]
    if not stale:
        return
    changes: set[str] = set()
    for run in stale:
        changes.update(run.stale)
    subject = count_are(len(stale), "finished run")
    yield f"{subject} STALE: {'; '.join(sorted(changes))}; retrain with --stale"


def _several_data_sets(plan: Plan) -> Iterator[str]:
    """Yield a note if the variants have several data sets, with the fields of ``data`` in which these differ.

    Fields that the first variant does not have, such as options of another dataset, are not named.
    """
    number = len({variant.data_hash for variant in plan.variants})
    if number == 1:
        return
    sections = []
    for variant in plan.variants:
        sections.append(dict(leaves(variant.config.data.model_dump(mode="json"))))
    differing = []
    for name in sections[0]:
        values = {str(section.get(name)) for section in sections}
        if len(values) > 1:
            differing.append(f"data.{name.removeprefix('options.')}")
    where = f", which differ in {listed(differing)}" if differing else ""
    yield f"{number} data sets{where}; the plan describes the baseline's"


def _no_baseline(plan: Plan) -> Iterator[str]:
    """Yield a note on the variants without a baseline, because that of their data and size is excluded."""
    lost = [slug for slug in plan.by_slug if plan.design.baseline_of(slug) is None]
    if not lost:
        return
    groups = set()
    for slug in lost:
        values = comparison_group(plan.by_slug[slug].record.axes).values()
        groups.add(", ".join(map(text, values)))
    names = " or ".join(sorted(groups))
    yield f"no baseline with {names}, so these are not compared: {', '.join(lost)}"


def _lengths(plan: Plan) -> Iterator[str]:
    yield from length_notes(plan.by_slug[plan.design.baseline].config, plan.data)


RULES: tuple[Callable[[Plan], Iterator[str]], ...] = (
    _design_and_matching,
    _nothing_compared,
    _incomplete_pairs,
    _reused_runs,
    _stale_runs,
    _several_data_sets,
    _no_baseline,
    _lengths,
)
