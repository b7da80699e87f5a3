"""``h2h ablate-heads``: the effect of masking attention heads of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headtohead.cli.options import format_option, load_plugins, plugin_option, runs_option
from headtohead_judge.output import echo, echo_json, print_table


@click.command("ablate-heads")
@click.argument("target", metavar="RUN|EXPERIMENT")
@click.option(
    "--no-decode", is_flag=True, help="Measure only the loss, without translating; much faster."
)
@click.option("--fresh", is_flag=True, help="Compute anew where heads.json exists.")
@format_option("json: the name of each run with the content of its heads.json.", "json")
@runs_option
@plugin_option
def command(target: str, no_decode: bool, fresh: bool, form: str, runs: Path) -> None:
    """Mask the heads of finished runs at test time and write the effects to heads.json.

    RUN is a run's directory or a prefix of its name. EXPERIMENT is a file, a name or a folder, and selects all
    its finished runs. In each layer, first each head is masked, then all heads except one. heads.json in the run
    directory holds the change of test loss, BLEU and exact match, and the entropy and distance of the recorded
    maps. h2h report has a figure of the effects on the baseline's runs.
    """
    from headtohead.execution.head_ablation import ablate_heads

    load_plugins()
    records = []
    for path in _directories(target, runs):
        record = ablate_heads(path, decode=not no_decode, fresh=fresh)
        records.append({"run": path.name, **record})
        if form == "text":
            _print(path.name, record)
    if form == "json":
        echo_json(records)


def _directories(target: str, runs: Path) -> list[Path]:
    """Return the directories of the selected finished runs."""
    from headtohead.errors import HeadToHeadError
    from headtohead.storage import states
    from headtohead.storage.experiment import ExperimentDirectory
    from headtohead.storage.progress import find_experiment
    from headtohead.storage.run_directory import RunDirectory, find_run

    try:
        folder = find_experiment(Path(target), runs)
    except HeadToHeadError:
        if Path(target).suffix in (".yaml", ".yml"):
            raise
        return [find_run(target, runs)]
    experiment = ExperimentDirectory.read(folder)
    paths = [run.path(experiment.path) for run in experiment.record.runs]
    done = [path for path in paths if RunDirectory(path).state == states.DONE]
    if not done:
        raise HeadToHeadError(f"no run of '{experiment.name}' is DONE; train it with h2h run FILE")
    return done


def _print(run_name: str, record: dict[str, Any]) -> None:
    """Print the scores with all heads, and a table of the effect of every head."""
    scores = record["whole"]
    listed = [f"{name} {value:.4g}" for name, value in scores.items()]
    echo(f"{run_name}: {', '.join(listed)} with all heads")
    columns = ["role", "layer", "head"]
    columns += [f"{name} without" for name in scores]
    columns += [f"{name} alone" for name in scores]
    columns += ["entropy", "distance"]
    rows = []
    for head in record["heads"]:
        row = [str(head[column]) for column in ("role", "layer", "head")]
        for effects in (head["without-one"], head["only-one"]):
            row += [f"{effects[name]:+.4f}" for name in scores]
        for column in ("entropy", "distance"):
            row.append(f"{head[column]:.2f}" if column in head else "-")
        rows.append(row)
    print_table(columns, rows, right=range(1, len(columns)))
    echo()
