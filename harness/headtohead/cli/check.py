"""``h2h check``: invariants of entries, recipes and datasets."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import format_option, load_plugins, plugin_option, set_option
from headtohead.cli.output import echo, echo_json, echo_text, print_table

if TYPE_CHECKING:
    from headtohead.testing.checks.examination import Examination


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@set_option("the recipe", "data.file=spa.txt")
@format_option("json: one record per name.", "json")
@plugin_option
def command(names: tuple[str, ...], overrides: tuple[str, ...], form: str) -> None:
    """Check NAME: FAMILY/NAME, such as feed_forward/swiglu or masking/window. Recipes and datasets are checked too.

    Without NAME, all entries except datasets are checked.

    With --plugin and without NAME, the entries of the plugin file are checked. The outcome of an invariant is
    "holds", "violated" with the deviation and an example, or "does not apply" with the reason. Entries are checked in
    encoder-decoders and decoder-only models, in float64 on the CPU. Recipes are checked at small sizes. Nothing is
    downloaded.

    Exit code 0: no unexpected violations ("known violation" is a declared violation). Exit code 1: unexpected
    violations, or an entry that cannot be checked.
    """
    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError
    from headtohead.testing.checks.entries import find_entries
    from headtohead.testing.checks.examination import Verdicts, examine

    registry = load_plugins()
    chosen = find_entries(names, click.get_current_context().meta["plugin_files"], registry)
    if overrides and all(entry.family not in ("recipe", "dataset") for entry in chosen):
        raise HeadToHeadError("--set applies to recipes and datasets only; name one of them")
    unchecked: list[str] = []
    examinations: list[Examination] = []
    verdicts: Verdicts = {}
    for entry in chosen:
        try:
            examination = examine(entry, registry, cache_root(), overrides, verdicts)
        except HeadToHeadError as error:
            if names or len(chosen) == 1:
                raise
            unchecked.append(entry.label)
            echo(f"not checked: {entry.label}: {error}", err=True)
            continue
        if form == "text":
            if examinations:
                echo("")
            echo(examination.name)
            _print_examination(examination)
        examinations.append(examination)
    violated = [examination.name for examination in examinations if not examination.is_sound]
    if form == "json":
        echo_json([examination.to_json() for examination in examinations])
    elif len(chosen) == 1:
        outcomes = Counter(verdict.outcome for _, verdict in examinations[0].results)
        holds, against, other = (outcomes[state] for state in ("holds", "violated", "does not apply"))
        echo("", f"{holds} invariants hold, {against} violated, {other} do not apply")
    else:
        echo("", f"{len(examinations)} checked, {len(violated)} with violations{_listed(violated)}")
        if unchecked:
            echo(f"{len(unchecked)} not checked{_listed(unchecked)}")
    sys.exit(1 if unchecked or violated else 0)


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
