"""``h2h heads``: what finished runs lose when their heads are masked, one at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from headtohead.cli.options import plugin_option, runs_option


@click.command("heads")
@click.argument("target", metavar="RUN|EXPERIMENT")
@click.option("--no-decode", is_flag=True, help="Do not translate: only the loss, and much faster.")
@click.option("--again", is_flag=True, help="Also runs that have a heads.json.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: the records as they are written.",
)
@runs_option
@plugin_option
def command(
    target: str, no_decode: bool, again: bool, form: str, runs_root: Path, plugin_files: tuple[Path, ...]
) -> None:
    """Mask the heads of finished runs at test time, and write what that changes.

    RUN is a run's directory or the beginning of its name; EXPERIMENT is a file, a name or a folder,
    and means all its finished runs. In each layer every head is masked by itself, and then every
    head but one; the change of test loss, BLEU and exact match goes to heads.json in the run's
    directory, beside the entropy and distance of its recorded maps. h2h report shows it where an
    experiment file makes claims of it.
    """
    from headtohead.plugins.registry import use_files
    from headtohead.tools.head_ablation import masked_heads

    use_files(plugin_files)
    records = []
    for path in _directories(target, runs_root):
        record = masked_heads(path, decode=not no_decode, again=again)
        records.append(record)
        if form == "text":
            _print(path.name, record)
    if form == "json":
        click.echo(json.dumps(records, ensure_ascii=False, indent=1, allow_nan=False))


def _directories(target: str, runs_root: Path) -> list[Path]:
    """Return the finished runs that are meant."""
    from headtohead.errors import HeadToHeadError
    from headtohead.execution.loaded import find_run
    from headtohead.storage import states
    from headtohead.storage.experiment import ExperimentDirectory
    from headtohead.storage.progress import find_experiment
    from headtohead.storage.run_directory import RunDirectory

    try:
        folder = find_experiment(Path(target), runs_root)
    except HeadToHeadError:
        if Path(target).suffix in (".yaml", ".yml"):
            raise
        return [find_run(target, runs_root)]
    experiment = ExperimentDirectory.read(folder)
    named = [experiment.run_path(run) for run in experiment.record.runs]
    done = [path for path in named if RunDirectory(path).state == states.DONE]
    if not done:
        raise HeadToHeadError(
            f"no run of '{experiment.name}' is done; heads are masked in trained models; start with h2h run FILE"
        )
    return done


def _print(name: str, record: dict[str, Any]) -> None:
    from headtohead.cli.tables import print_table

    whole = ", ".join(f"{key} {value:.4g}" for key, value in record["whole"].items())
    click.echo(f"{name}: {whole} with all heads")
    names = list(record["whole"])
    columns = [
        "role",
        "layer",
        "head",
        *(f"{one} without" for one in names),
        *(f"{one} alone" for one in names),
        "entropy",
        "distance",
    ]
    rows = [
        [
            one["role"],
            str(one["layer"]),
            str(one["head"]),
            *(f"{one['without-one'][key]:+.4f}" for key in names),
            *(f"{one['only-one'][key]:+.4f}" for key in names),
            _number(one.get("entropy")),
            _number(one.get("distance")),
        ]
        for one in record["heads"]
    ]
    print_table(columns, rows, right=set(range(1, len(columns))))
    click.echo("")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
