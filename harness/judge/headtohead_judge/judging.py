"""Judge the scores of any training code: a table with a row per variant and seed, compared with a baseline.

Nothing here reads run directories. The tests are those of reports.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from headtohead_judge import verdicts
from headtohead_judge.block_model import pooled
from headtohead_judge.copies import Run, copy_warnings, equal_curves
from headtohead_judge.errors import HeadToHeadError, similar_or_known
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import (
    SIGN_FLIP_SEEDS,
    Difference,
    Summary,
    few_seeds,
    paired,
    seeds_needed,
    summarise,
)
from headtohead_judge.unpaired import unpaired
from headtohead_judge.verdicts import BETTER, UNTESTED, Judgement

HIGHER = ("accuracy", "exact_match", "bleu", "chrf", "acc", "match", "rouge", "f1", "auc", "auroc",
          "precision", "recall", "reward", "score", "return", "win_rate", "map", "ndcg",
          "mfu", "per_second")  # fmt: skip
LOWER = ("loss", "perplexity", "ms", "mb", "seconds", "unk_rate", "error", "err", "wer", "cer", "ter", "ppl",
         "nll", "mse", "mae", "rmse", "bits_per_byte", "bpb", "bpc", "fid", "latency", "regret")  # fmt: skip
NEUTRAL = ("test", "valid", "validation", "val", "eval", "dev", "train", "final", "best", "last", "mean", "avg",
           "average", "macro", "micro", "weighted", "token", "tokens", "word", "char", "sentence", "top", "system",
           "cross", "entropy", "wall", "step", "epoch", "unpadded", "k", "l", "n")  # fmt: skip
"""Words that leave the direction of a metric as it is."""

FINISHED = frozenset({"finished", "ok", "done", "completed", "success", "succeeded"})
"""Values of a state column, in lower case, that mark a finished run."""

NOT_FINISHED = frozenset(
    {
        "failed",
        "crashed",
        "killed",
        "running",
        "pending",
        "scheduled",
        "preempted",
        "canceled",
        "cancelled",
    }
)
"""Values of a state column, in lower case, that mark a run without a final score."""

STATES = ("state", "status")
STEPS = ("step", "_step", "global_step", "epoch")
METRIC, VALUE = "metric", "value"
MAX_NAMES, MAX_VARIANTS, MAX_LETTERS = 5, 40, 80
"""Maximum numbers that a message has: rows, seeds or columns; variants; letters of a value."""

MIN_SIZE, MAX_SIZE = 1e-60, 1e60
"""Smallest and largest size of a score other than 0, so that the fourth power of a difference is a float."""

NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
WHOLE_NUMBER = re.compile(r"\A(-?)0*([1-9]\d*|0)(\.0*)?\Z", re.ASCII)


@dataclass(frozen=True)
class JudgedVariant:
    """A variant against the baseline; ``by_seed`` has the differences of paired seeds, ``scores`` the scores."""

    variant: str
    scores: Mapping[str, float]
    summary: Summary
    difference: Difference
    judgement: Judgement
    by_seed: Mapping[str, float]


@dataclass(frozen=True)
class Judged:
    """The judgement of a table of scores.

    Attributes:
        metric: Name of the metric.
        higher_is_better: Direction of the metric.
        baseline: Name of the baseline.
        scores: Scores of the baseline by seed.
        summary: Their summary.
        variants: The other variants, the largest difference first.
        is_paired: Whether differences are paired by seed.
        margin: The smallest difference that matters, or None.
        looks: The planned looks, or None.
        more_seeds: Number of further seeds per variant until the next look; None without looks or after the last.
        warnings: Remarks on the table, a line each.
    """

    metric: str
    higher_is_better: bool
    baseline: str
    scores: Mapping[str, float]
    summary: Summary
    variants: tuple[JudgedVariant, ...]
    is_paired: bool
    margin: float | None
    looks: Looks | None
    more_seeds: int | None
    warnings: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """Return a row per variant: seeds, mean, difference, intervals of direction and size, p-values and verdict."""
        return pd.DataFrame(
            {
                "variant": found.variant,
                "seeds": found.summary.n,
                "mean": found.summary.mean,
                "difference": found.difference.mean,
                "low": found.judgement.interval.low if found.judgement.interval else math.nan,
                "high": found.judgement.interval.high if found.judgement.interval else math.nan,
                "size_low": found.judgement.size_test.interval.low
                if found.judgement.size_test
                else math.nan,
                "size_high": found.judgement.size_test.interval.high
                if found.judgement.size_test
                else math.nan,
                "p": found.difference.p,
                "paired_p": found.difference.paired_p,
                "holm_p": found.judgement.holm_p,
                "sign_flip_p": found.difference.sign_flip_p,
                "verdict": found.judgement.verdict,
            }
            for found in self.variants
        )

    def heading(self, show: Callable[[float], str] = "{:.4g}".format) -> str:
        """Return metric, direction, margin, pairing and baseline as a line; ``show`` formats a score."""
        better = "higher" if self.higher_is_better else "lower"
        margin = f", margin {show(self.margin)}" if self.margin else ""
        mean = f"{show(self.summary.mean)} (standard deviation {show(self.summary.sd)}, {self.summary.n} seeds)"
        paired = "paired by seed" if self.is_paired else "unpaired"
        return (
            f"{self.metric}, {better} is better{margin}; {paired}; baseline {self.baseline}: {mean}"
        )

    def __str__(self) -> str:
        """Return the heading and the table."""
        return (
            f"{self.heading()}\n{self.frame().to_string(index=False, float_format='{:.4g}'.format)}"
        )

    def exit_code(self, accept: Collection[str] = (BETTER,)) -> int:
        """Return 0 if every verdict or its direction is in ``accept``, else 1 if such a variant is worse, else 3."""
        codes = {found.judgement.exit_code(accept) for found in self.variants}
        return 1 if 1 in codes else max(codes)


def judge(
    table: pd.DataFrame,
    *,
    baseline: str | None,
    metric: str | None = None,
    margin: float | None = None,
    higher_is_better: bool | None = None,
    is_paired: bool = True,
    looks: Looks | None = None,
    variant_columns: Sequence[str] = ("variant",),
    seed_column: str = "seed",
    step_column: str | None = None,
    candidates: Sequence[str] = (),
    sd: float | None = None,
    stored: Mapping[str, float] = MappingProxyType({}),
) -> Judged:
    """Judge every variant of a table, or the candidates, against the baseline.

    Args:
        table: A row per variant and seed with a column per metric, or a row per variant, seed and metric with the
            columns ``metric`` and ``value``.
        baseline: Name of the variant with which the others are compared; the error for None lists the variants.
        metric: The metric; not needed if the table has a single one.
        margin: The smallest difference that matters, for verdicts on the size.
        higher_is_better: Direction of the metric; by default from its name.
        is_paired: Pair scores by seed; False compares separate seeds by Welch's t-test.
        looks: Planned numbers of seeds, if the study is judged several times.
        variant_columns: Columns whose values, joined, name the variant.
        seed_column: Column of the seed.
        step_column: Column of the step, if a run has a row per evaluation; the last one counts.
        candidates: Names of the variants to judge; by default all but the baseline.
        sd: Standard deviation between seeds, if known. With a single seed per variant, the error then has the number
            of seeds that a decision needs; by default from the variants with several seeds.
        stored: Scores of the baseline by seed, used if the table has none of them.

    Raises:
        HeadToHeadError: If the table does not permit the comparison.
    """
    table = table.set_axis([str(name) for name in table.columns], axis=1).reset_index(drop=True)
    if table.columns.has_duplicates:
        name = table.columns[table.columns.duplicated()][0]
        raise HeadToHeadError(
            f"the table has the column '{name}' twice; remove or rename one of them"
        )
    table, warnings = _finished(table)
    chosen = {baseline, *candidates} if candidates else None
    curves, metric = _curves(
        table, metric, variant_columns, seed_column, step_column, chosen, candidates
    )
    scores: dict[str, dict[str, float]] = {}
    for run, curve in curves.items():
        scores.setdefault(run.variant, {})[run.seed] = curve[max(curve)]
    ends = _different_ends(curves)
    if baseline is None:
        raise HeadToHeadError(
            f"--baseline VARIANT is missing; variants: {_listed([*scores], MAX_VARIANTS)}"
        )
    if stored:
        scores.setdefault(baseline, {**stored})
    if baseline not in scores:
        raise HeadToHeadError(
            f"no variant '{baseline}' for --baseline{similar_or_known(baseline, scores)}"
        )
    if len(scores) < 2:
        raise HeadToHeadError(
            f"only the baseline '{baseline}' has scores; a comparison needs another variant"
        )
    if higher_is_better is None:
        higher_is_better = direction(metric)
    against = scores.pop(baseline)
    remark = "".join(
        f" ({warning})" for warning in warnings
    )  # a run that was left out explains a missing seed
    for variant, by_seed in [(baseline, against), *scores.items()]:
        if len(by_seed) < 2:
            raise HeadToHeadError(
                f"{_single_seed(variant, baseline, {baseline: against} | scores, sd, is_paired)}{remark}"
            )
        if is_paired and by_seed.keys() != against.keys():
            only = [f"{seed} only in '{variant}'" for seed in by_seed if seed not in against]
            only += [f"{seed} only in '{baseline}'" for seed in against if seed not in by_seed]
            raise HeadToHeadError(
                f"seeds of '{variant}' and '{baseline}' differ: {_listed(only)}; add the missing runs, or, without "
                f"--ledger, compare with --unpaired{remark}"
            )
        if looks and len(by_seed) != len(against):
            raise HeadToHeadError(
                f"'{variant}' has {len(by_seed)} seeds and '{baseline}' {len(against)}; looks need equal numbers"
            )
    warnings += copy_warnings(
        {baseline: against} | scores,
        curves,
        baseline=baseline,
        metric=metric,
        is_paired=is_paired,
        known={baseline} if against.items() <= stored.items() else (),
    )
    warnings += ends
    sizes = {
        variant: max(map(abs, by_seed.values()))
        for variant, by_seed in ({baseline: against} | scores).items()
    }
    least = min(sizes.values())
    if large := [
        f"'{variant}'" for variant, size in sizes.items() if least <= 1 and 30 < size <= 100
    ]:
        warnings.append(
            f"scores of {_listed(large)} can be percentages, and the others fractions; check their unit"
        )
    if is_paired:
        first = [*against.values()]
        rows = [[by_seed[seed] for seed in against] for by_seed in scores.values()]
        model, larger = pooled(dict(zip([baseline, *scores], [first, *rows], strict=True)))
        differences = [paired(row, first) for row in rows]
        if model and baseline not in larger:
            differences = [
                found if name in larger else model.moderated(found, 2.0)
                for name, found in zip(scores, differences, strict=True)
            ]
    else:
        differences = [
            unpaired([*by_seed.values()], [*against.values()]) for by_seed in scores.values()
        ]
    if looks and len(against) not in looks.seeds:
        judgements = [UNTESTED] * len(differences)
    else:
        judgements = verdicts.judge(
            differences, margin=margin, higher_is_better=higher_is_better, looks=looks
        )
    warnings += [few_seeds(len(against))] if is_paired and len(against) < SIGN_FLIP_SEEDS else []
    if is_paired and larger:
        varied = _listed([f"'{name}' ({ratio:.1f} times)" for name, ratio in larger.items()])
        warnings.append(
            f"scores vary more over seeds than those of the others: {varied}; their contrasts have paired t-tests of "
            "their own, the other contrasts share a variance"
        )
    same = [
        name for name, found in zip(scores, differences, strict=True) if found.kind == "constant"
    ]
    if is_paired and same:
        warnings.append(
            f"the difference is the same in every seed for {_listed(same)}; the sign-flip p replaces the t-test"
        )
    judged = [
        JudgedVariant(
            variant,
            by_seed,
            summarise([*by_seed.values()]),
            difference,
            judgement,
            {seed: by_seed[seed] - against[seed] for seed in against} if is_paired else {},
        )
        for (variant, by_seed), difference, judgement in zip(
            scores.items(), differences, judgements, strict=True
        )
    ]
    judged.sort(key=lambda found: -abs(found.difference.mean))
    planned = looks.next(len(against)) if looks else None
    return Judged(
        metric=metric,
        higher_is_better=higher_is_better,
        baseline=baseline,
        scores=against,
        summary=summarise([*against.values()]),
        variants=tuple(judged),
        is_paired=is_paired,
        margin=margin,
        looks=looks,
        more_seeds=planned - len(against) if planned else None,
        warnings=tuple(warnings),
    )


def _single_seed(
    variant: str,
    baseline: str,
    scores: Mapping[str, Mapping[str, float]],
    sd: float | None,
    is_paired: bool,
) -> str:
    """Return that a variant has a single seed, and the number of seeds that a decision needs if ``sd`` is known."""
    text = f"variant '{variant}' has a single seed; a test needs at least two per variant"
    columns = [np.array([*by_seed.values()]) for by_seed in scores.values()]
    degrees = sum(len(column) - 1 for column in columns)
    if sd is None and degrees:
        sd = math.sqrt(sum(((column - column.mean()) ** 2).sum() for column in columns) / degrees)
    if not sd:
        return (
            f"{text}; --sd X, the standard deviation between seeds, adds how many a decision needs"
        )
    other = variant if variant != baseline else next(name for name in scores if name != baseline)
    difference = float(np.mean([*scores[other].values()]) - columns[0].mean())
    needed = seeds_needed(difference / (math.sqrt(2) * sd), sides=1 if is_paired else 2)
    return (
        f"{text}; with a standard deviation of {sd:.2g} between seeds, a decision on the difference {difference:+.2g} "
        f"of '{other}' needs {needed or 'more than 1,000'} seeds each for 80 % power"
    )


def direction(metric: str) -> bool:
    """Return whether larger values of a metric are better, from its name.

    Raises:
        HeadToHeadError: If the name does not determine it.
    """
    rest, found = "_" + "_".join(re.split(r"[/\-. _]+", metric.lower())) + "_", set[bool]()
    for is_higher, known in ((False, LOWER), (True, HIGHER)):
        for name in sorted(known, key=len, reverse=True):
            if f"_{name}_" in rest:
                rest, found = rest.replace(f"_{name}_", "_"), found | {is_higher}
    others = {word.rstrip("0123456789") for word in rest.split("_")} - {*NEUTRAL, ""}
    if len(found) != 1 or others:
        raise HeadToHeadError(
            f"whether more of '{metric}' is better cannot be concluded from its name; add --higher-is-better or "
            "--lower-is-better"
        )
    return found.pop()


def _texts(column: pd.Series) -> list[str]:
    """Return the values of a column as text; a missing value is an empty text."""
    return [
        "" if gone else str(value)
        for value, gone in zip(column.tolist(), column.isna(), strict=True)
    ]


def _finished(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of finished runs, and a warning if there are others.

    Raises:
        HeadToHeadError: If no run is finished, or two columns have different states of a run.
    """
    by_column = {name: _texts(table[name]) for name in table.columns if name.lower() in STATES}
    not_finished = {name: _not_finished(states) for name, states in by_column.items()}
    columns = [name for name, rows in not_finished.items() if rows is not None]
    if not columns:
        return table, []
    column = columns[0]
    states, rows = by_column[column], not_finished[column] or {}
    for other in columns[1:]:
        differing = rows.keys() ^ (not_finished[other] or {}).keys()
        if differing:
            row = min(differing)
            raise HeadToHeadError(
                f"row {row + 1}: '{column}' is '{_shortened(states[row])}' and '{other}' is "
                f"'{_shortened(by_column[other][row])}'; remove one of the two columns"
            )
    if states and len(rows) == len(states):
        raise HeadToHeadError(
            f"no run is finished: the column '{column}' has {_listed(sorted({*rows.values()}))}"
        )
    if not rows:
        return table, []
    listed = _listed([f"row {row + 1} ({state})" for row, state in rows.items()])
    return table.drop([*rows]), [f"left out, as their {column} is not finished: {listed}"]


def _not_finished(states: Sequence[str]) -> dict[int, str] | None:
    """Return the states of the runs that are not finished by row, or None if the column has other words than states."""
    lower = {state.lower() for state in states}
    if lower.isdisjoint(FINISHED | NOT_FINISHED):
        return None
    # Without a word for finished runs, the other words are not states.
    left_out = NOT_FINISHED if lower.isdisjoint(FINISHED) else lower - FINISHED
    return {row: state for row, state in enumerate(states) if state.lower() in left_out}


def _curves(
    table: pd.DataFrame,
    metric: str | None,
    variant_columns: Sequence[str],
    seed_column: str,
    step_column: str | None,
    chosen: Collection[str | None] | None,
    candidates: Sequence[str],
) -> tuple[dict[Run, dict[float, float]], str]:
    """Return the scores of each run of the chosen variants by step, and the name of the metric.

    Raises:
        HeadToHeadError: If a column or value is missing, a run has a step twice, or two seeds of a variant have the
            same values at all steps.
    """
    _require_columns(table, variant_columns, seed_column, step_column)
    column, table, metric = _metric_column(table, metric, {*variant_columns, seed_column})
    variants = _variants(table, variant_columns, candidates)
    steps = _texts(table[step_column]) if step_column else ["0"] * len(table)
    rows_of: dict[Run, list[int]] = {}
    curves: dict[str, dict[Run, dict[float, float]]] = {}
    for index, variant, seed, score, step in zip(
        table.index, variants, _texts(table[seed_column]), _texts(table[column]), steps, strict=True
    ):
        row = index + 1
        if chosen is not None and variant not in chosen:
            continue
        if not variant or seed.lower() in ("", "nan"):
            raise HeadToHeadError(
                f"row {row} has no {'seed' if variant else 'variant'}; every run needs one"
            )
        whole = WHOLE_NUMBER.match(seed)
        run = Run(variant, whole[1] + whole[2] if whole else seed)
        value = float(score) if NUMBER.fullmatch(score) else math.nan
        if value and not MIN_SIZE <= abs(value) <= MAX_SIZE:
            raise _score_error(
                score, f"row {row}: '{metric}' of variant '{variant}', seed {_shortened(run.seed)}"
            )
        rows_of.setdefault(run, []).append(row)
        curve = curves.setdefault(variant, {}).setdefault(run, {})
        curve[_finite(step, f"row {row}: '{step_column}'") if step_column else 0.0] = value
    by_run = {run: curve for runs in curves.values() for run, curve in runs.items()}
    _refuse_repeated_rows(by_run, rows_of)
    _refuse_copies(by_run)
    return by_run, metric


def _variants(table: pd.DataFrame, columns: Sequence[str], candidates: Sequence[str]) -> list[str]:
    """Return the name of the variant of each row; it is empty for a row without any.

    Raises:
        HeadToHeadError: If a candidate has no row.
    """
    values = zip(*(_texts(table[name]) for name in columns), strict=True)
    variants = [" · ".join(parts) if any(parts) else "" for parts in values]
    known = {*variants}
    for variant in candidates:
        if variant not in known:
            raise HeadToHeadError(f"no variant '{variant}'{similar_or_known(variant, known)}")
    return variants


def _refuse_repeated_rows(
    curves: Mapping[Run, Mapping[float, float]], rows_of: Mapping[Run, Sequence[int]]
) -> None:
    """Raise a `HeadToHeadError` if a run has several rows of a step."""
    for run, curve in curves.items():
        if len(curve) == len(rows_of[run]):
            continue
        rows = _listed([*map(str, rows_of[run])])
        raise HeadToHeadError(
            f"variant '{run.variant}' has seed {run.seed} twice (rows {rows}); a run counts once: remove the others, "
            "name further columns of the variant with --variant, or the column of the step with --step if a run has "
            "several rows"
        )


def _require_columns(
    table: pd.DataFrame, variant_columns: Sequence[str], seed_column: str, step_column: str | None
) -> None:
    """Raise a `HeadToHeadError` if a column that an option names is missing."""
    named = [*((name, "--variant") for name in variant_columns), (seed_column, "--seed")]
    if step_column is not None:
        named.append((step_column, "--step"))
    for column, option in named:
        if column in table.columns:
            continue
        names = [*table.columns]
        if len(names) == 1:
            raise HeadToHeadError(
                f"the table has one column, '{_shortened(names[0])}'; commas separate the columns of .csv, and "
                "tabs those of .tsv"
            )
        raise HeadToHeadError(
            f"the table has no column '{column}'; columns: {_listed(names)}; name it with {option}, or give the "
            "table one row per variant and seed, with the columns variant, seed and the metric"
        )


def _refuse_copies(curves: Mapping[Run, Mapping[float, float]]) -> None:
    """Raise a `HeadToHeadError` if two seeds of a variant have the same values at all steps."""
    for group in equal_curves({run: curve for run, curve in curves.items() if len(curve) > 1}):
        first_of: dict[str, Run] = {}
        for run in group:
            first = first_of.setdefault(run.variant, run)
            if first != run:
                raise HeadToHeadError(
                    f"variant '{run.variant}': seeds {first.seed} and {run.seed} have the same values at all "
                    f"{len(curves[run])} steps; a copied run is no further seed"
                )


def _different_ends(curves: Mapping[Run, Mapping[float, float]]) -> list[str]:
    """Return a warning if runs end at different steps."""
    last_steps = {run: max(curve) for run, curve in curves.items()}
    if len({*last_steps.values()}) < 2:
        return []
    ends = []
    for run in (
        min(last_steps, key=last_steps.__getitem__),
        max(last_steps, key=last_steps.__getitem__),
    ):
        ends.append(
            f"{last_steps[run]:g} (seed {_shortened(run.seed)} of '{_shortened(run.variant)}')"
        )
    return [
        f"runs end at different steps, from {ends[0]} to {ends[1]}; the last row of each counts"
    ]


def _score_error(text: str, name: str) -> HeadToHeadError:
    """Return the error about a text that is no score; ``name`` begins it."""
    try:
        value = _finite(text, name, "; give every run a score, or remove the variant")
    except HeadToHeadError as error:
        return error
    size = f"{name} is {value:g}; scores must be 0 or between {MIN_SIZE:g} and {MAX_SIZE:g} in size"
    return HeadToHeadError(f"{size}: rescale the metric")


def _finite(text: str, name: str, remedy: str = "") -> float:
    """Return a number; ``name`` begins the error about another text, and ``remedy`` ends it."""
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        problem = f"is not a finite number: '{_shortened(text)}'" if text else "has no number"
        raise HeadToHeadError(f"{name} {problem}{remedy}")
    return value


def _metric_column(
    table: pd.DataFrame, metric: str | None, others: set[str]
) -> tuple[str, pd.DataFrame, str]:
    """Return the column of the scores, the rows that hold them, and the name of the metric."""
    is_long = {METRIC, VALUE} <= set(table.columns)
    names = pd.Series(_texts(table[METRIC]), table.index) if is_long else pd.Series(dtype=object)
    if metric in table.columns:
        if (names == metric).any():
            raise HeadToHeadError(
                f"'{metric}' is a column and a value of the column '{METRIC}'; remove or rename one of them"
            )
        return str(metric), table, str(metric)
    known = [*names.unique()] if is_long else _with_numbers(table, {*others, *STEPS})
    chosen = metric or (known[0] if len(known) == 1 else "")
    if chosen in known:
        return (VALUE, table[names == chosen], chosen) if is_long else (chosen, table, chosen)
    if metric is not None:
        raise HeadToHeadError(f"no metric '{metric}'{similar_or_known(metric, known)}")
    if not known:
        raise HeadToHeadError(
            f"no column has scores, which are plain numbers such as 0.31; columns: {_listed([*table.columns])}"
        )
    known.sort(key=lambda name: not name.startswith(("test/", "valid/", "eval/", "val/")))
    raise HeadToHeadError(f"several metrics; choose with --metric: {_listed(known)}")


def _with_numbers(table: pd.DataFrame, others: Collection[str]) -> list[str]:
    """Return the names of the columns that have a number, without the others."""
    known = []
    columns = table.to_numpy(
        dtype=object
    ).T  # reading a column of an array is much faster than one of a frame
    for name, values in zip(table.columns, columns, strict=True):
        if name not in others and any(NUMBER.fullmatch(str(value)) for value in values):
            known.append(name)
    return known


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}…"


def _listed(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """Return the first names and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(_shortened, names[:most])) + more
