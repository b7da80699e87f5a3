"""Read results as public benchmarks store them: parameter-golf, modded-nanogpt and autoresearch.

Every reader returns the table of a score file: a row per variant and seed, with every value as text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead.analysis.score_files import AUTORESEARCH, read_score_file, unique_keys
from headtohead.errors import HeadToHeadError
from headtohead.files import read_bytes

MAX_FILES = 10_000
EVALUATION = re.compile(r"^step:(\d{1,9})/\d+ (val_loss:.*\n?)", re.ASCII | re.MULTILINE)
SCORE = re.compile(r"\b(val_\w+):(\S+)(?=\s)", re.ASCII)  # a number at the end of a cut file can miss digits
TIME = re.compile(r" train_time:(\d+\.?\d*)(ms|s)\b", re.ASCII)


def read_results(path: Path) -> pd.DataFrame:
    """Return the scores of a table, or of a folder of results.

    - autoresearch: a table with the columns ``commit``, ``val_bpb`` and ``status``. A commit is a variant, its rows are
      seeds, and crashed runs are not finished.
    - parameter-golf: a folder with files ``submission*.json``. ``seed_results``, ``seeds`` or ``seed_scores`` hold the
      scores of the seeds; a file with neither has a single score.
    - modded-nanogpt: a folder of ``.txt`` or ``.log`` files with lines ``step:N/M val_loss:X``; a smaller step begins
      another run of the file. A file with the text ``val_loss`` and no such line is a run without a score.

    In a folder, the path of a subfolder is the variant of its files. A file directly in it is a variant itself.

    Raises:
        HeadToHeadError: If the file is no table, or the folder has no results.
    """
    if not path.is_dir():
        table = read_score_file(path)
        return _autoresearch(table) if {*table.columns} >= AUTORESEARCH else table
    files = sorted(Path(parent, name) for parent, _, names in os.walk(path) for name in names)
    if len(files) > MAX_FILES:
        raise HeadToHeadError(f"{path} has {len(files):,} files, more than {MAX_FILES:,}; name a folder in it")
    for patterns, reader in FOLDERS.items():
        rows = [
            {"variant": str(file.parent.relative_to(path)) if file.parent != path else file.stem} | row
            for file in files
            if any(fnmatch(file.name, pattern) for pattern in patterns)
            for row in reader(file)
        ]
        if rows:
            return pd.DataFrame(rows, dtype="object")
    raise HeadToHeadError(
        f"no results in the folder {path}; it needs files submission.json, or .txt and .log files with lines such as "
        "'step:10/10 val_loss:3.28'"
    )


def _autoresearch(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "variant": table["commit"],
            "seed": (table.groupby("commit").cumcount() + 1).astype(str),
            "val_bpb": table["val_bpb"],
            "status": table["status"].replace({"keep": "finished", "discard": "finished", "crash": "crashed"}),
        }
    )


def _submission(file: Path) -> list[dict[str, Any]]:
    """Return the scores of a submission to parameter-golf by seed."""
    content = read_bytes(file, advice="name a folder of readable results")
    try:
        record = json.loads(content.decode("utf-8-sig"), object_pairs_hook=unique_keys, parse_int=str, parse_float=str)
        found = record.get("seed_results") or record.get("seeds")
        if "seed_scores" in record:
            found = unique_keys([*zip(map(str, record["seeds"]), record["seed_scores"], strict=True)])
        if isinstance(found, list) and all(isinstance(each, dict) for each in found):
            found = unique_keys([(str(each.get("seed", number)), each) for number, each in enumerate(found, 1)])
        by_seed = found if isinstance(found, dict) else {record.get("seed", "1"): record}
        scores = {seed: each if isinstance(each, dict) else {"val_bpb": each} for seed, each in by_seed.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HeadToHeadError(
            f"{file}: not a submission of parameter-golf ({type(error).__name__}: {error})"
        ) from error
    return [
        {"seed": seed} | {name: each.get(name) for name in ("val_bpb", "val_loss")} for seed, each in scores.items()
    ]


def _log(file: Path) -> list[dict[str, Any]]:
    """Return the validation scores and the time of a log of modded-nanogpt, a row per run and step."""
    runs: list[list[dict[str, Any]]] = [[]]
    text = read_bytes(file, advice="name a folder of readable logs").decode(errors="replace")
    for step, scores in EVALUATION.findall(text):
        if runs[-1] and int(step) < int(runs[-1][-1]["step"]):
            runs.append([])
        row = {"seed": file.stem, "step": step, "state": "finished"} | dict(found := SCORE.findall(scores))
        if time := TIME.search(scores):
            row["train_seconds"] = repr(float(time[1]) / {"ms": 1000, "s": 1}[time[2]])
        if not found:  # the scores of the steps before are not the final ones
            runs[-1], row["state"] = [], f"step {step} of {file.name} has no complete score"
        runs[-1].append(row)
    if not runs[-1] and "val_loss" in text:  # the log begins with the source of the script
        return [{"seed": file.stem, "step": "0", "state": f"no evaluation in {file.name}"}]
    numbered = len(runs) > 1
    return [
        row | {"seed": f"{row['seed']}#{number}"} if numbered else row
        for number, run in enumerate(runs, 1)
        for row in run
    ]


FOLDERS: dict[tuple[str, ...], Callable[[Path], list[dict[str, Any]]]] = {
    ("submission*.json",): _submission,
    ("*.txt", "*.log"): _log,
}
"""Readers of folders by the patterns of their files; the first one that finds results is used."""
