"""``h2h check``: invariants of entries, recipes and datasets."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import format_option, load_plugins, plugin_option, set_option
from headtohead_judge.output import echo, echo_json, echo_text, print_table

if TYPE_CHECKING:
    from headtohead.testing.checks.examination import Examination


SUMMARY = {
    "holds": "checks hold",
    "violated": "violated",
    "known violation": "known violations",
    "does not apply": "do not apply",
}
"""Outcomes in the order and the words of a summary."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@set_option("the recipe, dataset or experiment", "data.file=spa.txt")
@format_option("json: one record per name.", "json")
@plugin_option
def command(names: tuple[str, ...], overrides: tuple[str, ...], form: str) -> None:
    """Check NAME: FAMILY/NAME, such as feed_forward/swiglu or masking/window. Recipes and datasets are checked too.

    Without NAME, all entries except datasets are checked.

    With --plugin and without NAME, the entries of the plugin file are checked. The outcome of an invariant is
    "holds", "violated" with the deviation and an example, or "does not apply" with the reason. Entries are checked in
    encoder-decoders and decoder-only models, in float64 on the CPU. Recipes are checked at small sizes. Nothing is
    downloaded.

    FILE.yaml checks an experiment: each variant at small sizes, then its stacks as they will train, with the sizes,
    data, batches and precision of the study, on the CPU. Each stack takes at most 30 s. Models that are too large
    for this are checked in part, and what was left out is named.

    Exit code 0: no unexpected violations ("known violation" is a declared violation). Exit code 1: unexpected
    violations, or an entry that cannot be checked.
    """
    from headtohead.errors import HeadToHeadError

    files = [name for name in names if name.endswith((".yaml", ".yml"))]
    if files and len(names) > 1:
        raise HeadToHeadError(f"'{files[0]}' is an experiment file; check it alone")
    if files:
        examinations = _examine_file(files[0], overrides, form)
        unchecked: list[str] = []
    else:
        examinations, unchecked = _examine_entries(names, overrides, form)
    violated = [examination.name for examination in examinations if not examination.is_sound]
    if form == "json":
        echo_json([examination.to_json() for examination in examinations])
    elif len(examinations) == 1 and not unchecked:
        outcomes = Counter(verdict.outcome for _, verdict in examinations[0].results)
        holds, against, other = (
            outcomes[state] for state in ("holds", "violated", "does not apply")
        )
        echo("", f"{holds} invariants hold, {against} violated, {other} do not apply")
    else:
        echo("", f"{len(examinations)} checked, {len(violated)} with violations{_listed(violated)}")
        if unchecked:
            echo(f"{len(unchecked)} not checked{_listed(unchecked)}")
    sys.exit(1 if unchecked or violated else 0)


def _examine_entries(
    names: tuple[str, ...], overrides: tuple[str, ...], form: str
) -> tuple[list[Examination], list[str]]:
    """Examine registered entries; return the examinations and the labels of entries that cannot be checked."""
    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError
    from headtohead.testing.checks.entries import find_entries
    from headtohead.testing.checks.examination import Verdicts, examine

    load_plugins()
    chosen = find_entries(names, click.get_current_context().meta["plugin_files"])
    if overrides and all(entry.family not in ("recipe", "dataset") for entry in chosen):
        raise HeadToHeadError(
            "--set applies to recipes, datasets and experiments only; name one of them"
        )
    unchecked: list[str] = []
    examinations: list[Examination] = []
    verdicts: Verdicts = {}
    for entry in chosen:
        try:
            examination = examine(entry, cache_root(), overrides, verdicts)
        except HeadToHeadError as error:
            if names or len(chosen) == 1:
                raise
            unchecked.append(entry.label)
            echo(f"not checked: {entry.label}: {error}", err=True)
            continue
        examinations.append(examination)
        if form == "text":
            _print_named(examination, is_first=len(examinations) == 1)
    return examinations, unchecked


def _examine_file(file: str, overrides: tuple[str, ...], form: str) -> list[Examination]:
    """Examine the variants and stacks of an experiment file."""
    from headtohead import api
    from headtohead.execution.launching import make_launcher
    from headtohead.execution.scheduler import Machine
    from headtohead.testing.checks.experiment import examine_experiment

    load_plugins()
    plan = api.plan(file, overrides=overrides, fresh=True)
    stacks = Machine(make_launcher("local", {})).stacks(plan, plan.runs)
    examinations: list[Examination] = []
    for examination in examine_experiment(plan, stacks):
        examinations.append(examination)
        if form == "text":
            _print_summary(examination)
    return examinations


def _print_summary(examination: Examination) -> None:
    """Print the outcomes of a variant or stack in a line, and its violations and gaps in further lines."""
    outcomes = Counter(verdict.outcome for _, verdict in examination.results)
    counts = ", ".join(
        f"{outcomes[name]} {text}" for name, text in SUMMARY.items() if outcomes[name]
    )
    echo(f"{examination.name}: {counts}")
    for check, verdict in examination.results:
        if verdict.outcome == "violated":
            echo_text(
                f"  {check.name}: {verdict.error or verdict.counterexample or verdict.reason}"
            )
        if verdict.outcome == "known violation":
            echo_text(f"  {check.name}: known violation of {verdict.cause}")
    if examination.gaps:
        echo_text(f"  not checked: {', '.join(examination.gaps)}")


def _print_named(examination: Examination, *, is_first: bool) -> None:
    if not is_first:
        echo("")
    echo(examination.name)
    _print_examination(examination)


def _print_examination(examination: Examination) -> None:
    rows: list[list[str]] = []
    errors: dict[str, list[str]] = {}
    for invariant, verdict in examination.results:
        if verdict.error is not None:
            errors.setdefault(verdict.error, []).append(invariant.name)
            continue
        number = "-" if verdict.number is None else f"{verdict.number:.3g}"
        reason = f"{verdict.reason}; by {verdict.cause}" if verdict.cause else verdict.reason
        rows.append([invariant.name, verdict.outcome, number, reason])
    if rows:
        print_table(["invariant", "outcome", "number", "measurement"], rows, right={2})
    for error, invariants in errors.items():
        echo("", f"violated: {error}", f"  raised by {', '.join(invariants)}")
    for invariant, verdict in examination.results:
        if verdict.outcome == "violated" and verdict.counterexample:
            echo("", f"example of {invariant.name}:")
            echo_text(f"  {verdict.counterexample}")
    for pitfall in examination.pitfalls:
        echo("", f"pitfall: {pitfall.name} ({pitfall.field}): {pitfall.consequence}")


def _listed(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""
