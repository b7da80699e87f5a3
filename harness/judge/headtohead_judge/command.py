"""``h2h judge``: the statistics of a report for scores of any training code."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from headtohead_judge.output import echo, echo_json, echo_text, markdown_table, print_table

if TYPE_CHECKING:
    import pandas as pd

    from headtohead_judge.judging import Judged
    from headtohead_judge.ledger import Ledger

STORES = "headtohead_judge.stores"
"""Group of the entry points of functions that read an experiment of an MLflow store."""

ACCEPTED = [
    *(
        f"{direction}{size}"
        for direction in ("better", "undetected", "worse")
        for size in ("", ",within", ",beyond", ",unclear")
    ),
    "identical",
    "no verdict",
]
"""Values of --accept: a direction with any size, or with one size."""

EXIT_CODES = """
\b
verdict of a variant             exit code
in --accept                      0
undetected, within (equivalent)  0 with --accept undetected,within, else 3
worse, with any size             1
undetected, unclear              3
any other                        3
"""


@click.command(epilog=EXIT_CODES)
@click.argument("source", metavar="FILE", required=False)
@click.option(
    "--baseline", metavar="VARIANT", help="The variant with which the others are compared."
)
@click.option(
    "--candidate",
    "candidates",
    metavar="VARIANT",
    multiple=True,
    help="Judge only this variant; repeatable.",
)
@click.option("--metric", metavar="NAME", help="The metric; not needed if there is a single one.")
@click.option(
    "--margin",
    type=float,
    metavar="X",
    help="The smallest difference that matters, for a verdict on the size.",
)
@click.option(
    "--higher-is-better/--lower-is-better",
    default=None,
    help="Direction of the metric, if its name does not determine it.",
)
@click.option("--unpaired", is_flag=True, help="Compare separate seeds (Welch's t-test).")
@click.option(
    "--looks",
    type=click.IntRange(min=1, max=50),
    metavar="N",
    help="Number of times that the study is judged, at equal intervals up to --at-most seeds.",
)
@click.option(
    "--at-most",
    type=click.IntRange(min=3, max=1000),
    default=20,
    show_default=True,
    metavar="SEEDS",
    help="Number of seeds of the last look.",
)
@click.option(
    "--accept",
    type=click.Choice(ACCEPTED),
    multiple=True,
    default=("better",),
    show_default=True,
    help="A direction, or a direction and a size, for exit code 0; repeatable.",
)
@click.option(
    "--variant",
    "variant_columns",
    metavar="COLUMN",
    multiple=True,
    default=("variant",),
    show_default=True,
    help="Column of the variant; repeatable.",
)
@click.option(
    "--seed",
    "seed_column",
    metavar="COLUMN",
    default="seed",
    show_default=True,
    help="Column of the seed.",
)
@click.option(
    "--step",
    "step_column",
    metavar="COLUMN",
    help="Column of the step, if a run has a row per evaluation: the last row of a run counts.",
)
@click.option(
    "--sd",
    type=float,
    metavar="X",
    help="Standard deviation between seeds: the error about a single seed then has the number that a decision needs.",
)
@click.option("--experiment", metavar="NAME", help="Experiment of the MLflow store FILE.")
@click.option(
    "--answer",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the answer as JSON.",
)
@click.option(
    "--ledger",
    "ledger_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="LEDGER",
    help="Decide on one candidate against the incumbent, and append the decision to this JSON Lines file.",
)
@click.option(
    "--status",
    is_flag=True,
    help="Print the incumbent of LEDGER and the seeds that a decision needs.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="json: the answer as JSON.",
)
def command(
    source: str | None,
    unpaired: bool,
    looks: int | None,
    at_most: int,
    accept: tuple[str, ...],
    experiment: str | None,
    answer: Path | None,
    ledger_file: Path | None,
    status: bool,
    form: str,
    **options: Any,
) -> None:
    """Judge the scores in FILE: is each variant better than the baseline, or is the difference noise?

    FILE is a CSV, TSV, JSON Lines or Parquet table with a row per variant and seed, such as the CSV of a W&B runs
    table or the results.csv of a report, the URI of an MLflow store, the results.tsv of autoresearch, or a folder of
    submissions to parameter-golf or of logs of modded-nanogpt. A verdict is a direction (better, worse or
    undetected) and, with --margin, a size (within, beyond or unclear). The command exits with 1 if a variant
    has exit code 1, else with the largest code; invalid input gives 2.
    """
    from headtohead_judge import files
    from headtohead_judge.answer import answer_of, is_answer
    from headtohead_judge.errors import HeadToHeadError
    from headtohead_judge.judging import judge
    from headtohead_judge.looks import Looks
    from headtohead_judge.text import Numbers, decision_line, judged_frame, look_line

    if (
        looks is None
        and click.get_current_context().get_parameter_source("at_most")
        is ParameterSource.COMMANDLINE
    ):
        raise HeadToHeadError("--at-most requires --looks N, the number of looks")
    margin = options["margin"]
    for name in ("margin", "sd"):
        if options[name] is not None and not 0 < options[name] < float("inf"):
            raise HeadToHeadError(f"--{name} must be a positive number, got {options[name]:g}")
    if margin is None and any("," in verdict for verdict in accept):
        raise HeadToHeadError(
            "--accept with a size requires --margin X; without it, verdicts have no size"
        )
    planned = Looks.planned(looks, at_most) if looks else None
    ledger = None
    if ledger_file:
        from headtohead_judge.ledger import Ledger

        ledger = Ledger.read(ledger_file)
    if status:
        if ledger is None:
            raise HeadToHeadError("--status requires --ledger LEDGER")
        _show_status(ledger, form)
        return
    if source is None:
        raise HeadToHeadError("FILE with the scores is missing")
    if ledger is not None and (unpaired or planned or margin):
        raise HeadToHeadError("--ledger does not accept --unpaired, --looks or --margin")
    outputs = {
        "--answer": answer,
        "--ledger": ledger_file,
        "the lock of --ledger": ledger.lock if ledger else None,
    }
    _refuse_overwriting({name: path for name, path in outputs.items() if path is not None}, source)
    table = _table(source, experiment, options["metric"])
    if (experiment or Path(source).is_dir()) and "step" in table.columns:  # a row per evaluation
        options["step_column"] = options["step_column"] or "step"

    def judge_against(ledger: Ledger | None) -> Judged:
        own = dict(options)
        if ledger is not None and ledger.decisions:
            last = ledger.decisions[-1]
            known = {
                "baseline": ledger.incumbent,
                "metric": last.metric,
                "higher_is_better": last.higher_is_better,
            }
            own |= {name: value for name, value in known.items() if own[name] is None}
            own["stored"] = ledger.scores if own["baseline"] == ledger.incumbent else {}
        return judge(table, is_paired=not unpaired, looks=planned, **own)

    decision, is_repeated, before = None, False, ledger
    if ledger is not None and ledger.decisions:  # a repeated command prints the last decision again
        before = replace(ledger, decisions=ledger.decisions[:-1])
        with suppress(HeadToHeadError):
            judged = judge_against(before)
            is_repeated = (decision := before.decide(judged)) == ledger.decisions[-1]
    if not is_repeated:
        judged, before = judge_against(ledger), ledger
        decision = ledger.decide(judged) if ledger is not None else None
    accept = tuple(verdict.replace(",", ", ") for verdict in accept)
    code = judged.exit_code(accept)
    warnings = list(judged.warnings)
    if before is not None and decision is not None:
        code = 0 if decision.kept else code or 3
        warnings += filter(None, [before.measured_again(decision)])
    record = answer_of(judged, code) | {"decision": asdict(decision) if decision else None}
    if answer is not None:
        files.refuse_foreign(answer, is_answer, advice := "choose another file with --answer")
    if is_repeated:
        warnings.append(f"{ledger_file} has this decision already; this is its answer again")
    elif ledger is not None and decision is not None:
        ledger = ledger.append(decision)
    if answer is not None:
        with files.writing(answer, advice):
            files.write_text(answer, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    for warning in warnings:
        echo(f"warning: {warning}", err=True)
    frame, lines = (
        judged_frame(judged, accept),
        [judged.heading(Numbers(judged)), *filter(None, [look_line(judged)])],
    )
    if ledger is not None and decision is not None:
        lines.append(decision_line(ledger, decision))
        frame["exit code"] = str(code)
    if form == "json":
        echo_json(record)
    elif form == "markdown":
        from headtohead_judge.escaping import markdown_escape

        rows = frame.to_numpy().tolist()
        table_text = markdown_table([*frame], rows, left=("variant", "verdict"))
        first, *last = map(markdown_escape, lines)
        echo_text("\n\n".join([first, table_text, *last]) + "\n")
    else:
        echo(lines[0], "")
        print_table([*map(str, frame)], frame.to_numpy().tolist(), range(1, len(frame.columns) - 2))
        for line in lines[1:]:
            echo("", line)
    sys.exit(code)


def _show_status(ledger: Ledger, form: str) -> None:
    """Print the incumbent, the level of the next decision, and the seeds that it needs."""
    seeds = {str(effect): ledger.seeds(effect) for effect in (0.5, 1.0, 2.0)}
    record = {
        "incumbent": ledger.incumbent,
        "incumbent_seeds": [*ledger.scores],
        "decisions": len(ledger.decisions),
        "kept": len(ledger.kept),
        "level": ledger.level,
        "wealth": ledger.wealth,
        "standard_deviation": ledger.deviation,
        "seeds": seeds,
    }
    if form == "json":
        echo_json(record)
        return
    held = ledger.incumbent and f"{ledger.incumbent}, with scores of {len(ledger.scores)} seeds"
    echo(
        f"incumbent: {held or f'none; {ledger.path} has no decision, and the first names it with --baseline'}"
    )
    echo(f"decisions: {len(ledger.decisions)}, {len(ledger.kept)} kept")
    echo(
        f"next decision: level {ledger.level:.2g} (one-sided) of the remaining {ledger.wealth:.2g}"
    )
    for effect, number in seeds.items():
        known = f" ({float(effect) * ledger.deviation:.2g})" if ledger.deviation else ""
        needed = f"{number or 'more than 1,000'} seeds for 80 % power"
        echo(
            f"  an improvement of {effect} standard deviations of the differences{known}: {needed}"
        )


def _refuse_overwriting(outputs: Mapping[str, Path], source: str) -> None:
    """Raise a `HeadToHeadError` if a written file is another one, or a file that this or a later command reads."""
    from headtohead_judge import files
    from headtohead_judge.errors import HeadToHeadError
    from headtohead_judge.result_folders import is_result, result_files

    for (name, path), (other, other_path) in itertools.combinations(outputs.items(), 2):
        if files.is_same_file(path, other_path):
            raise HeadToHeadError(
                f"'{path}' of {name} is the file of {other}, too; choose another file"
            )
    read = _local_path(source)
    if read is None:
        return
    folder = Path(os.path.realpath(read))
    for name, path in outputs.items():
        if any(files.is_same_file(path, file) for file in result_files(read)):
            raise HeadToHeadError(f"'{path}' of {name} is a file with scores; choose another file")
        if (
            folder.is_dir()
            and is_result(path)
            and Path(os.path.realpath(path)).is_relative_to(folder)
        ):
            raise HeadToHeadError(
                f"'{path}' of {name} would be read as a result of {read}; choose a file outside of this folder"
            )


def _local_path(source: str) -> Path | None:
    """Return the path of a table, a folder of results or an SQLite database; None for other stores."""
    scheme, separator, rest = source.partition("://")
    if not separator:
        return Path(source)
    return Path(rest.partition("?")[0].removeprefix("/")) if scheme == "sqlite" else None


def _table(source: str, experiment: str | None, metric: str | None) -> pd.DataFrame:
    """Return the table of a file, or of an experiment in an MLflow store."""
    from headtohead_judge.errors import HeadToHeadError

    if ("://" in source) != (experiment is not None):
        example = "--experiment NAME with sqlite:///mlflow.db"
        raise HeadToHeadError(
            f"the URI of an MLflow store and --experiment need each other: {example}; got {source}"
        )
    if experiment is not None:
        return _store_reader()(source, experiment, metric)
    from headtohead_judge.result_folders import read_results

    return read_results(Path(source))


def _store_reader() -> Callable[[str, str, str | None], pd.DataFrame]:
    """Return the function that reads an experiment of an MLflow store, from the installed package that has one.

    The package names it in the entry points of the group `STORES`; headtohead has one.
    """
    from importlib.metadata import entry_points

    from headtohead_judge.errors import HeadToHeadError

    for entry_point in entry_points(group=STORES):
        reader: Callable[[str, str, str | None], pd.DataFrame] = entry_point.load()
        return reader
    raise HeadToHeadError("no installed package reads MLflow stores; install headtohead")
