"""``h2h check``: what every variant must keep, and what the faults of a recipe do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import plugin_option

if TYPE_CHECKING:
    from headtohead.evidence import Examination


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE",
              help="Override a field of every recipe, for example data.file=spa.txt.")  # fmt: skip
@click.option("--cache", type=click.Path(path_type=Path), show_default="~/.cache/headtohead",
              envvar="H2H_CACHE", help="Folder of downloads and prepared data.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="json: one record per name.")  # fmt: skip
@plugin_option
def command(
    names: tuple[str, ...],
    overrides: tuple[str, ...],
    cache: Path | None,
    form: str,
    plugin_files: tuple[Path, ...],
) -> None:
    """Check NAME: positional/NAME, attention/NAME, masking/NAME or recipe/NAME; default: all.

    For each invariant: holds, broken with the number that shows it, or does not apply and why. A
    recipe is asked at small sizes; what its named faults do is measured at its own sizes, on its
    own data where that is at hand. Nothing is downloaded.

    Exit code 0 if nothing is broken, or only by choices that are known to break it ("broken as
    named"); 1 if an invariant is broken by anything else.
    """
    from headtohead import plugins
    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError
    from headtohead.evidence import examine, targets

    registry = plugins.use_files(plugin_files)
    chosen = targets(names, registry)
    if overrides and all(one.family != "recipe" for one in chosen):
        raise HeadToHeadError("--set changes recipes, and none is checked; name one")
    found: list[Examination] = []
    for one in chosen:
        try:
            found.append(examine(one, registry, cache or cache_root(), overrides))
        except HeadToHeadError as error:
            if names:
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
    sys.exit(0 if all(one.is_sound for one in found) else 1)


def _print_one(found: Examination) -> None:
    from headtohead.cli.tables import print_table

    click.echo(found.name)
    rows = [
        [one.invariant, one.outcome, "-" if one.number is None else f"{one.number:.3g}",
         f"{one.reason}; by {one.because}" if one.because else one.reason]
        for one in found.findings
    ]  # fmt: skip
    print_table(["invariant", "outcome", "number", "what was measured"], rows, right={2})
    for fault in found.faults:
        click.echo(f"\nfault: {fault.name} ({fault.field}): {fault.says}")
        for fact in found.facts:
            if fact.fault == fault.name:
                click.echo(f"  {fact.sentence}")


def _print_sum(found: list[Examination]) -> None:
    broken = [one.name for one in found if not one.is_sound]
    named = [one.name for one in found if one.is_sound and one.count("broken as named")]
    click.echo(f"\n{len(found)} checked, {len(broken)} broken{_listed(broken)}")
    if named:
        click.echo(f"broken as named{_listed(named)}")


def _listed(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""
