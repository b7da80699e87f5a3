"""Read results as public benchmarks store them: parameter-golf, modded-nanogpt and autoresearch.

Every reader returns the table of a score file: a row per variant and seed, with every value as text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.files import load_json, read_bytes, refuse_repeated_keys
from headtohead_judge.score_files import AUTORESEARCH, read_score_file

MAX_FILES = 10_000
EVALUATION = re.compile(r"^step:(\d{1,9})/(\d{1,9}) (val_loss:.*\n?)", re.ASCII | re.MULTILINE)
SCORE = re.compile(r"val_\w+", re.ASCII)
TIME = re.compile(r"(\d{1,15}(?:\.\d{0,15})?)(ms|s)", re.ASCII)
PER_SECOND = {"ms": 1000, "s": 1}
METRICS = ("val_bpb", "val_loss")
"""Metrics of parameter-golf."""


def read_results(path: Path) -> pd.DataFrame:
    """Return the scores of a table, or of a folder of results.

    - autoresearch: a table with the columns ``commit``, ``val_bpb`` and ``status``. A commit is a variant, its rows are
      seeds, and crashed runs are not finished.
    - parameter-golf: a folder with files ``submission*.json``. ``seed_results``, ``seeds`` or ``seed_scores`` hold the
      scores of the seeds; a file with neither has a single score.
    - modded-nanogpt: a folder of ``.txt`` or ``.log`` files with lines ``step:N/M val_loss:X``; a smaller step begins
      another run of the file. A run whose last step is not M is not finished. A file with the text ``val_loss`` and no
      such line is a run without a score.

    In a folder, the path of a subfolder is the variant of its files. A file directly in it is a variant itself.

    Raises:
        HeadToHeadError: If the file is no table, the folder has no results, or a file has two values of a quantity.
    """
    if not path.is_dir():
        table = read_score_file(path)
        is_autoresearch = {*table.columns} >= AUTORESEARCH
        return _autoresearch(table) if is_autoresearch else table
    files = _files(path)
    for patterns, reader in FOLDERS.items():
        rows: list[dict[str, Any]] = []
        for file in files:
            if _matches(file, patterns):
                variant = _variant(file, path)
                rows += [{"variant": variant} | row for row in reader(file)]
        if rows:
            return pd.DataFrame(rows, dtype="object")
    raise HeadToHeadError(
        f"no results in the folder {path}; it needs files submission.json, or .txt and .log files with lines such as "
        "'step:10/10 val_loss:3.28'"
    )


def _autoresearch(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a ``results.tsv`` with the columns of a table of scores."""
    seeds = table.groupby("commit").cumcount() + 1
    states = {"keep": "finished", "discard": "finished", "crash": "crashed"}
    columns = {
        "variant": table["commit"],
        "seed": seeds.astype(str),
        "val_bpb": table["val_bpb"],
        "status": table["status"].replace(states),
    }
    return pd.DataFrame(columns)


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders."""
    files = []
    for parent, _, names in os.walk(folder):
        files += [Path(parent, name) for name in names]
    if len(files) > MAX_FILES:
        raise HeadToHeadError(
            f"{folder} has {len(files):,} files, more than {MAX_FILES:,}; name a folder in it"
        )
    return sorted(files)


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path.name, pattern) for pattern in patterns)


def _variant(file: Path, folder: Path) -> str:
    """Return the variant of a file in a folder of results: its subfolder, or the file itself."""
    if file.parent == folder:
        return file.stem
    return str(file.parent.relative_to(folder))


def result_files(path: Path) -> list[Path]:
    """Return the files that `read_results` reads from a path."""
    if not path.is_dir():
        return [path]
    return [file for file in _files(path) if is_result(file)]


def is_result(path: Path) -> bool:
    """Return whether a file in a folder of results is read, from its name."""
    return any(_matches(path, patterns) for patterns in FOLDERS)


def _submission(file: Path) -> list[dict[str, Any]]:
    """Return the scores of a submission to parameter-golf by seed."""
    content = read_bytes(file, advice="name a folder of readable results")
    try:
        record = load_json(
            content.decode("utf-8-sig"),
            unique_keys=True,
            parse_int=str,
            parse_float=str,
        )
        tables = _seed_tables(record)
        rows = _merged(tables) if tables else {str(record.get("seed", "1")): record}
        _refuse_other_seeds(record, tables)
        _refuse_other_means(record, rows)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HeadToHeadError(
            f"{file}: not a submission of parameter-golf ({type(error).__name__}: {error})"
        ) from error
    except HeadToHeadError as error:
        raise HeadToHeadError(f"{file}: {error}; correct one of them") from error
    scores = []
    for seed, row in rows.items():
        scores.append({"seed": seed} | {name: row.get(name) for name in METRICS})
    return scores


def _seed_tables(record: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the scores by seed of each key of a submission that has them."""
    tables = {}
    for key in ("seed_results", "seeds"):
        value = record.get(key)
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            pairs = [(str(row.get("seed", n)), row) for n, row in enumerate(value, 1)]
            value = refuse_repeated_keys(pairs)
        if value and isinstance(value, dict):
            tables[key] = {seed: _row(key, seed, row) for seed, row in value.items()}
    if "seed_scores" in record:
        scores = record["seed_scores"]
        if not isinstance(scores, dict):
            seeds = map(str, record["seeds"])
            scores = refuse_repeated_keys([*zip(seeds, scores, strict=True)])
        rows = {seed: _row("seed_scores", seed, row) for seed, row in scores.items()}
        tables["seed_scores"] = rows
    return tables


def _row(key: str, seed: str, row: Any) -> dict[str, Any]:
    """Return the scores of a seed; a single value is ``val_bpb``."""
    if not isinstance(row, dict):
        return {"val_bpb": row}
    if str(row.get("seed", seed)) != seed:
        raise HeadToHeadError(
            f"'{key}' has the seed {seed} as key, and {row['seed']} in its field 'seed'"
        )
    return row


def _merged(tables: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the scores by seed of all tables.

    Raises:
        HeadToHeadError: If two tables have different seeds, or different scores of a seed.
    """
    first_key, first = next(iter(tables.items()))
    merged: dict[str, dict[str, Any]] = {}
    source: dict[tuple[str, str], str] = {}
    for key, table in tables.items():
        if table.keys() != first.keys():
            raise HeadToHeadError(
                f"'{first_key}' has the seeds {', '.join(first)}, and '{key}' the seeds {', '.join(table)}"
            )
        for seed, row in table.items():
            scores = merged.setdefault(seed, {})
            for name in METRICS:
                if name not in row:
                    continue
                value = scores.setdefault(name, row[name])
                first_source = source.setdefault((seed, name), key)
                if first_source != key and not _is_same(value, row[name]):
                    raise HeadToHeadError(
                        f"{name} of seed {seed} is {value} in '{first_source}', and {row[name]} in '{key}'"
                    )
    return merged


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two values of a file are equal, as numbers if they are numbers."""
    if first == second:
        return True
    number = _number(first)
    return number is not None and number == _number(second)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _refuse_other_seeds(record: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise a `HeadToHeadError` if keys of a submission name other seeds than the tables of scores."""
    if not tables:
        return
    key, table = next(iter(tables.items()))
    seeds = record.get("seeds")
    names = ", ".join(table)
    if isinstance(seeds, list) and "seeds" not in tables:
        texts = [str(seed) for seed in seeds]
        if {*texts} != {*table}:
            raise HeadToHeadError(f"'seeds' has {', '.join(texts)}, and '{key}' the seeds {names}")
    if "seed" in record and str(record["seed"]) not in table:
        raise HeadToHeadError(f"'seed' is {record['seed']}, and '{key}' has the seeds {names}")
    number = record.get("n_seeds", len(table))
    if _number(number) != len(table):
        raise HeadToHeadError(f"'n_seeds' is {number}, and '{key}' has {len(table)} seeds")


def _refuse_other_means(record: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise a `HeadToHeadError` if a score of the whole submission is outside the range of those of its seeds.

    Submissions state the mean, the best or the first of their seeds, rounded.
    """
    for name in METRICS:
        scores = [_number(row.get(name)) for row in rows.values()]
        numbers = [score for score in scores if score is not None]
        if len(numbers) < len(scores):
            continue
        for key in (name, f"mean_{name}"):
            total = _number(record.get(key))
            if total is None:
                continue
            decimals = len(str(record[key]).partition(".")[2])
            rounding = 0.51 * 10.0**-decimals
            if not min(numbers) - rounding <= total <= max(numbers) + rounding:
                raise HeadToHeadError(
                    f"'{key}' is {record[key]}, and {name} of the seeds {', '.join(rows)} is from {min(numbers)} to "
                    f"{max(numbers)}"
                )


@dataclass
class _LoggedRun:
    """A run of a log: the last step that its lines state, and a row per evaluation."""

    steps: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return int(self.rows[-1]["step"])


def _log(file: Path) -> list[dict[str, Any]]:
    """Return the validation scores and the time of a log of modded-nanogpt, a row per run and step."""
    text = read_bytes(file, advice="name a folder of readable logs").decode(errors="replace")
    runs = _logged_runs(text, file)
    if not runs and "val_loss" in text:  # the log begins with the source of the script
        return [{"seed": file.stem, "step": "0", "state": f"no evaluation in {file.name}"}]
    rows = []
    for number, run in enumerate(runs, 1):
        seed = f"{file.stem}#{number}" if len(runs) > 1 else file.stem
        if run.last != int(run.steps) and run.rows[-1]["state"] == "finished":
            state = f"{file.name} ends at step {run.last} of {run.steps}"
            run.rows = [run.rows[-1] | {"state": state}]
        rows += [row | {"seed": seed} for row in run.rows]
    return rows


def _logged_runs(text: str, file: Path) -> list[_LoggedRun]:
    """Return the runs of a log; a smaller step than that of the line before begins a run.

    Raises:
        HeadToHeadError: If the lines of a run state different last steps.
    """
    runs: list[_LoggedRun] = []
    for step, steps, line in EVALUATION.findall(text):
        if not runs or int(step) < runs[-1].last:
            runs.append(_LoggedRun(steps))
        run = runs[-1]
        if run.steps != steps:
            raise HeadToHeadError(
                f"{file}: the last step of a run is {run.steps} in 'step:{run.last}/{run.steps}', and {steps} in "
                f"'step:{step}/{steps}'; correct one of them"
            )
        row = {"seed": file.stem, "step": step, "state": "finished"} | _logged(line, file, step)
        if not any(name.startswith("val_") for name in row):
            # The scores of the steps before are not the final ones.
            run.rows = []
            row["state"] = f"step {step} of {file.name} has no complete score"
        run.rows.append(row)
    return runs


def _logged(line: str, file: Path, step: str) -> dict[str, str]:
    """Return the scores and the seconds of an evaluation.

    Raises:
        HeadToHeadError: If the line has two values of a name.
    """
    words = line.split()
    if not line[-1].isspace():  # a number at the end of a cut file can miss digits
        words.pop()
    values: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition(":")
        if not value or not (name == "train_time" or SCORE.fullmatch(name)):
            continue
        if values.setdefault(name, value) != value:
            raise HeadToHeadError(
                f"{file}: step {step} has '{name}:{values[name]}' and '{name}:{value}'; correct one of them"
            )
    time = TIME.fullmatch(values.pop("train_time", ""))
    if time:
        values["train_seconds"] = repr(float(time[1]) / PER_SECOND[time[2]])
    return values


FOLDERS: dict[tuple[str, ...], Callable[[Path], list[dict[str, Any]]]] = {
    ("submission*.json",): _submission,
    ("*.txt", "*.log"): _log,
}
"""Readers of folders by the patterns of their files; the first one that finds results is used."""
