"""Submissions to parameter-golf (github.com/openai/parameter-golf): ``submission.json`` with the scores of its seeds.

``seed_results``, ``seeds`` or ``seed_scores`` hold the scores of the seeds; a file with neither has a single score.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.files import load_json, read_bytes, refuse_repeated_keys
from headtohead_judge.readers.formats import FolderFormat, Rows, subfolder_or_name

METRICS = ("val_bpb", "val_loss")


def read(files: list[Path], folder: Path) -> Rows:
    """Return a row per submission and seed; the subfolder of a submission is its variant."""
    rows: Rows = []
    for file in files:
        variant = subfolder_or_name(file, folder)
        rows += [{"variant": variant} | row for row in _submission(file)]
    return rows


def _submission(file: Path) -> Rows:
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


PARAMETER_GOLF = FolderFormat("submission.json of parameter-golf", ("submission*.json",), read)
