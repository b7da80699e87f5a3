"""``h2h check``: what every variant must keep, and what the pitfalls of a recipe do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import plugin_option

if TYPE_CHECKING:
    from headtohead.plugins.registry import Registered, Registry
    from headtohead.tools.pitfalls import Examination
    from headtohead.tools.pitfalls.survey import Survey


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Ask every defined combination of the registered entries.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a field of every recipe, for example data.file=spa.txt.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    show_default="~/.cache/headtohead",
    envvar="H2H_CACHE",
    help="Folder of downloads and prepared data.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="json: one record per name; markdown: the page of --all.",
)
@plugin_option
def command(
    names: tuple[str, ...],
    everything: bool,
    overrides: tuple[str, ...],
    cache: Path | None,
    form: str,
    plugin_files: tuple[Path, ...],
) -> None:
    """Check NAME: positional/NAME, attention/NAME, masking/NAME or recipe/NAME; default: all.

    With --plugin and no NAME: what the file registers. For each invariant: holds, broken with the
    number and the smallest example that shows it, or does not apply and why. All is computed in
    float64 on the CPU. A recipe is asked at small sizes; what its named pitfalls do is measured at
    its own sizes, on its own data where that is at hand. Nothing is downloaded.

    Exit code 0 if nothing is broken, or only by choices that are known to break it ("broken as
    named"); 1 if an invariant is broken by anything else.
    """
    from headtohead.errors import HeadToHeadError
    from headtohead.plugins.registry import use_files

    registry = use_files(plugin_files)
    if everything:
        if names or overrides:
            raise HeadToHeadError("--all asks of all combinations; leave out names and --set")
        sys.exit(_survey(registry, form))
    if form == "markdown":
        raise HeadToHeadError("--format markdown is the page of --all; add --all, or take json")
    sys.exit(_check(_chosen(names, plugin_files, registry), registry, names, overrides, cache, form))


def _chosen(names: tuple[str, ...], files: tuple[Path, ...], registry: Registry) -> list[Registered]:
    from headtohead.tools.pitfalls.entries import entries_of_files, find_entries

    return entries_of_files(files, registry) if files and not names else find_entries(names, registry)


def _check(
    chosen: list[Registered],
    registry: Registry,
    names: tuple[str, ...],
    overrides: tuple[str, ...],
    cache: Path | None,
    form: str,
) -> int:
    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError
    from headtohead.tools.pitfalls import examine
    from headtohead.tools.pitfalls.examination import Verdicts

    if overrides and all(one.family != "recipe" for one in chosen):
        raise HeadToHeadError("--set changes recipes, and none is checked; name one")
    found: list[Examination] = []
    verdicts: Verdicts = {}
    for one in chosen:
        try:
            found.append(examine(one, registry, cache or cache_root(), overrides, verdicts))
        except HeadToHeadError as error:
            if names or len(chosen) == 1:
                raise
            click.echo(f"not checked: {one.family}/{one.name}: {error}", err=True)
            continue
        if form == "text":
            click.echo("\n" if len(found) > 1 else "", nl=False)
            _print_one(found[-1])
    if form == "json":
        records = [one.to_json() for one in found]
        click.echo(json.dumps(records, ensure_ascii=False, indent=1, allow_nan=False))
    elif len(found) > 1:
        _print_sum(found)
    return 0 if all(one.is_sound for one in found) else 1


def _print_one(found: Examination) -> None:
    from headtohead.cli.tables import print_table

    click.echo(found.name)
    errors: dict[str, list[str]] = {}
    for one in found.results:
        if one.error is not None:
            errors.setdefault(one.error, []).append(one.invariant)
    rows = [
        [
            one.invariant,
            one.outcome,
            "-" if one.number is None else f"{one.number:.3g}",
            f"{one.reason}; by {one.because}" if one.because else one.reason,
        ]
        for one in found.results
        if one.error is None
    ]
    if rows:
        print_table(["invariant", "outcome", "number", "what was measured"], rows, right={2})
    for error, invariants in errors.items():
        click.echo(f"\nbroken: {error}\n  raised by {', '.join(invariants)}")
    for one in found.results:
        if one.outcome == "broken" and one.example and one.error is None:
            click.echo(f"\nsmallest example of {one.invariant}:\n  {one.example}")
    for pitfall in found.pitfalls:
        click.echo(f"\npitfall: {pitfall.name} ({pitfall.field}): {pitfall.consequence}")
        for fact in found.facts:
            if fact.pitfall == pitfall.name:
                click.echo(f"  {fact.sentence}")


def _print_sum(found: list[Examination]) -> None:
    broken = [one.name for one in found if not one.is_sound]
    named = [
        one.name for one in found if one.is_sound and any(result.outcome == "known violation" for result in one.results)
    ]
    click.echo(f"\n{len(found)} checked, {len(broken)} broken{_listed(broken)}")
    if named:
        click.echo(f"known violations{_listed(named)}")


def _listed(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def _survey(registry: Registry, form: str) -> int:
    from headtohead.tools.pitfalls.survey import survey, survey_page

    def progress(asked: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{asked} combinations", nl=False, err=True)

    found = survey(registry, progress)
    if sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
    if form == "markdown":
        click.echo(survey_page(found, registry))
    elif form == "json":
        click.echo(json.dumps(found.to_json(), ensure_ascii=False, indent=1, allow_nan=False))
    else:
        _print_survey(found)
    return 0 if found.is_sound else 1


def _print_survey(found: Survey) -> None:
    from headtohead.cli.tables import print_table

    outcomes = ("holds", "does not apply", "known violation", "broken")
    rows = [[name, *(str(counts[one]) for one in outcomes)] for name, counts in found.invariants.items()]
    print_table(["invariant", *outcomes], rows, right={1, 2, 3, 4})
    for variant, one in found.violations:
        click.echo(f"\nbroken: {one.invariant} by {variant}\n  {one.example or one.reason}")
    click.echo(f"\n{found.combinations} combinations checked, {len(found.violations)} invariants broken")
