"""Simulated studies of equal variants with tuned learning rates: how often a contrast has a wrong direction.

    python benchmarks/simulated_tuning.py [--studies 20000] [--correlation 0.5] [--write PAGE]

A study has the losses of a committed sweep: a cubic curve through the means of a variant at its rates, and normal noise
with the standard deviation of all tuning runs of the report. All variants have this curve, so every direction is wrong.
Each variant is tuned by its own tuning runs, as `headtohead.planning.tuning` does, and compared on other seeds. With
``--correlation``, the noise of a seed at neighbouring rates is correlated.

Sums over studies are added to ``benchmarks/simulated_tuning.json`` after every part, so that an interrupted command
continues. ``--write`` writes the tables of this file to the page.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from simulated_intervals import Intervals, Spread, moderated_intervals

from headtohead.analysis.selection import TuningScores, selection_of
from headtohead.planning.tuning.choice import FURTHER_SEEDS, choose_from, rounded
from headtohead.planning.tuning.widening import MAX_WIDENINGS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

TUNE_SEEDS = 2
LISTED = 4
"""Number of rates that a sweep lists; further ones follow beyond its ends."""
BEYOND = MAX_WIDENINGS + 1
"""Number of rates below and above the listed ones that have losses."""
PART = 250
"""Number of studies that are simulated at once, with random numbers of their own."""
RESULTS = Path(__file__).parent / "simulated_tuning.json"
MAX_WRONG = 0.055
"""Largest accepted rate of wrong directions."""


class CommittedSweep(NamedTuple):
    """A variant's tuning runs in a committed report.

    Attributes:
        name: The report and the variant.
        rates: The rates, each twice the one before.
        losses: The mean validation loss at each rate.
        sd: The standard deviation over seeds, pooled over all tuning runs of the report.
        variants: The number of variants of the report.
        seeds: The number of seeds of its comparison.
    """

    name: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    sd: float
    variants: int
    seeds: int

    def rate(self, row: int) -> float:
        """Return the rate of a row of a table of tuning runs, whose listed rates follow `BEYOND` smaller ones."""
        return self.rates[0] * 2.0 ** (row - BEYOND)


RATES = (0.001, 0.002, 0.004, 0.008, 0.016)
SWEEPS = (
    CommittedSweep(
        "equal-steps, partial rotary", RATES[:4], (1.862, 1.793, 1.785, 1.841), 0.0113, 10, 12
    ),
    CommittedSweep(
        "equal-parameters, split heads", RATES, (1.972, 1.889, 1.832, 1.811, 1.855), 0.0116, 4, 12
    ),
    CommittedSweep(
        "equal-parameters, gate", RATES, (1.907, 1.838, 1.783, 1.766, 1.835), 0.0116, 4, 12
    ),
    CommittedSweep("equal-time, gate", RATES, (1.946, 1.869, 1.805, 1.784, 1.840), 0.0167, 4, 12),
    CommittedSweep(
        "tatoeba, split heads", RATES, (1.743, 1.635, 1.573, 1.551, 1.622), 0.0159, 8, 12
    ),
    CommittedSweep(
        "tatoeba, partial rotary", RATES, (1.929, 1.802, 1.694, 1.636, 1.658), 0.0159, 8, 12
    ),
    CommittedSweep(
        "partial-rotary, rotary", RATES, (1.976, 1.881, 1.841, 1.840, 1.869), 0.0144, 3, 6
    ),
    CommittedSweep(
        "architectures-tatoeba, decoder-only",
        (0.0015, 0.003, 0.006, 0.012, 0.024),
        (3.205, 2.855, 2.673, 2.592, 2.675),
        0.0435,
        3,
        6,
    ),
    CommittedSweep(
        "architectures-tatoeba, encoder-decoder",
        (0.0015, 0.003, 0.006, 0.012, 0.024),
        (2.946, 2.583, 2.365, 2.359, 3.256),
        0.0435,
        3,
        6,
    ),
)
"""Sweeps of four and more rates, with flat, steep and unlike sides."""


@dataclass(frozen=True)
class Tuned:
    """A variant that was tuned.

    Attributes:
        rows: The rows of the table of tuning runs that were trained, in this order; the first `LISTED` are listed.
        rate: The chosen rate.
        by_curve: Whether it is the minimum of a parabola.
        candidates: The rows with further seeds; empty with a parabola.
    """

    rows: tuple[int, ...]
    rate: float
    by_curve: bool
    candidates: tuple[int, ...]


@dataclass(frozen=True)
class Studies:
    """Simulated studies of equal variants.

    Attributes:
        losses: ``[study, variant, rate, seed]``, the losses of the tuning runs.
        scores: ``[study, variant, seed]``, the noise of the compared runs.
        tuned: The tuned variants, of the first study first.
        expected: ``[study, variant]``, the expected loss at the chosen rate.
        of_grid: ``[study, variant]``, the expected loss at the best rate of two seeds.
        choice: The variance of the choice ``[study, variant]``.
    """

    losses: Floats
    scores: Floats
    tuned: Sequence[Tuned]
    expected: Floats
    of_grid: Floats
    choice: Spread

    @property
    def intervals_of_grid(self) -> Intervals:
        """The intervals over seeds where each variant has the best rate of two seeds."""
        return moderated_intervals(self.scores + self.of_grid[:, :, None])

    @property
    def intervals(self) -> Intervals:
        """The intervals over seeds where each variant has the chosen rate."""
        return moderated_intervals(self.scores + self.expected[:, :, None])

    @property
    def intervals_with_choice(self) -> Intervals:
        """The intervals of the judge: over seeds, and over the choices of the two variants (Satterthwaite, 1946)."""
        variance = self.choice.variance
        degrees = self.choice.degrees
        total = variance[:, 1:] + variance[:, :1]
        squares = variance[:, 1:] ** 2 / degrees[:, 1:] + variance[:, :1] ** 2 / degrees[:, :1]
        # Without any variance, the degrees of freedom have no effect.
        total_degrees = np.ones_like(total)
        np.divide(total**2, squares, out=total_degrees, where=squares > 0)
        return self.intervals.with_source(Spread(total, total_degrees))


@dataclass(frozen=True)
class Sums:
    """Sums over simulated studies of equal variants.

    Attributes:
        studies: The number of studies.
        wrong_of_grid: Studies with a wrong direction where each variant has the best rate of two seeds.
        wrong_of_seeds: The same where each variant has the chosen rate, with intervals over seeds alone.
        wrong: The same with the choice as a source of variance.
        variants: The number of variants of all studies.
        by_curve: Variants at the minimum of a parabola.
        loss: The sum of the expected losses at the chosen rates, without the smallest loss of the sweep.
        squared_loss: The sum of their squares.
        variance: The sum of the estimated variances of the choice.
        contrasts: The number of contrasts of all studies.
        wider: The sum of the ratios of the widths of an interval with and without the choice.
    """

    studies: int = 0
    wrong_of_grid: int = 0
    wrong_of_seeds: int = 0
    wrong: int = 0
    variants: int = 0
    by_curve: int = 0
    loss: float = 0.0
    squared_loss: float = 0.0
    variance: float = 0.0
    contrasts: int = 0
    wider: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        sums = {}
        for summand in fields(self):
            sums[summand.name] = getattr(self, summand.name) + getattr(other, summand.name)
        return Sums(**sums)

    @property
    def sd(self) -> float:
        """The standard deviation of the loss at the chosen rate over variants."""
        mean = self.loss / self.variants
        return math.sqrt(self.squared_loss / self.variants - mean**2)

    @property
    def estimated_sd(self) -> float:
        """The root of the mean estimated variance of the choice."""
        return math.sqrt(self.variance / self.variants)


def draw_losses(
    sweep: CommittedSweep, generator: np.random.Generator, correlation: float
) -> Floats:
    """Return the losses of the tuning runs of the variants of a study, ``[variant, rate, seed]``.

    The rates are those of `CommittedSweep.rate`, the seeds those of the sweep and `FURTHER_SEEDS` more.
    """
    num_rates = LISTED + 2 * BEYOND
    noise = generator.normal(size=(sweep.variants, num_rates, TUNE_SEEDS + FURTHER_SEEDS))
    for row in range(1, num_rates):
        shared = correlation * noise[:, row - 1]
        noise[:, row] = shared + math.sqrt(1 - correlation**2) * noise[:, row]
    rates = [sweep.rate(row) for row in range(num_rates)]
    losses: Floats = sweep.sd * noise + loss_at(sweep, rates)[:, None]
    return losses


def loss_at(sweep: CommittedSweep, rates: Sequence[float] | Floats) -> Floats:
    """Return the expected loss at each rate: a cubic polynomial in its logarithm."""
    losses: Floats = _curve(sweep)(np.log(rates))
    return losses


@cache
def _curve(sweep: CommittedSweep) -> Polynomial:
    return Polynomial.fit(np.log(sweep.rates), sweep.losses, 3)


def tune(sweep: CommittedSweep, losses: Floats) -> list[Tuned]:
    """Tune variants: the listed rates, further ones, then further seeds of the two best, as the choice asks for.

    Args:
        sweep: The sweep.
        losses: ``[variant, rate, seed]``, as from `draw_losses`.
    """
    tuned: dict[int, Tuned] = {}
    # Variants with the same rates are tuned together.
    groups = {tuple(range(BEYOND, BEYOND + LISTED)): np.arange(len(losses))}
    while groups:
        rows, members = groups.popitem()
        numbers = [sweep.rate(row) for row in rows]
        of_rows = losses[members][:, rows]
        choices = choose_from(numbers, of_rows[..., :TUNE_SEEDS], of_rows[..., TUNE_SEEDS:])
        sides = np.where(choices.by_curve, 0, choices.sides(numbers))
        if len(rows) == LISTED + MAX_WIDENINGS:
            sides[:] = 0
        for side, further in ((-1, min(rows) - 1), (1, max(rows) + 1)):
            if (sides == side).any():
                groups[*rows, further] = members[sides == side]
        for number in np.flatnonzero(sides == 0):
            by_curve = bool(choices.by_curve[number])
            candidates = tuple(rows[index] for index in choices.candidates[number])
            rate = numbers[choices.best[number]]
            if by_curve:
                candidates = ()
                rate = rounded(math.exp(choices.minimum[number]))
            tuned[int(members[number])] = Tuned(rows, rate, by_curve, candidates)
    return [tuned[variant] for variant in range(len(losses))]


def variances_of_choices(
    sweep: CommittedSweep, losses: Floats, tuned: Sequence[Tuned]
) -> tuple[Floats, Floats]:
    """Return the variance that the choice of each variant adds to its mean loss, and its degrees of freedom."""
    variances = []
    degrees = []
    for of_variant, table in zip(tuned, losses, strict=True):
        rows = list(of_variant.rows)
        further = table[:, TUNE_SEEDS:].copy()
        has_further = np.isin(np.arange(len(table)), of_variant.candidates)
        further[~has_further] = np.nan
        scores = TuningScores(table[rows, :TUNE_SEEDS], further[rows])
        numbers = [sweep.rate(row) for row in rows]
        selection = selection_of(numbers, LISTED, of_variant.by_curve, scores, scores)
        variances.append(selection.variance)
        degrees.append(selection.degrees)
    return np.array(variances), np.array(degrees)


def best_of_grid(means: Sequence[float]) -> int:
    """Return the row of the best mean of two seeds; a best rate at an end of the sweep gets a further one."""
    first = BEYOND
    last = BEYOND + LISTED - 1
    for _ in range(MAX_WIDENINGS):
        best = min(range(first, last + 1), key=means.__getitem__)
        if best == last:
            last += 1
        elif best == first:
            first -= 1
        else:
            return best
    return min(range(first, last + 1), key=means.__getitem__)


def draw_studies(
    sweep: CommittedSweep, studies: int, generator: np.random.Generator, correlation: float = 0.0
) -> Studies:
    """Return studies of equal variants, tuned with the noise of a committed sweep.

    Args:
        sweep: The sweep.
        studies: The number of studies.
        generator: Draws the noise.
        correlation: The correlation of the noise of a seed at a rate and at twice this rate.
    """
    losses = []
    scores = []
    for _ in range(studies):
        losses.append(draw_losses(sweep, generator, correlation))
        scores.append(sweep.sd * generator.normal(size=(sweep.variants, sweep.seeds)))
    of_variants = np.concatenate(losses)
    tuned = tune(sweep, of_variants)
    grid = []
    for means in of_variants[:, :, :TUNE_SEEDS].mean(axis=-1).tolist():
        grid.append(sweep.rate(best_of_grid(means)))
    shape = (studies, sweep.variants)
    variances, degrees = variances_of_choices(sweep, of_variants, tuned)
    return Studies(
        losses=np.array(losses),
        scores=np.array(scores),
        tuned=tuned,
        expected=loss_at(sweep, [of_variant.rate for of_variant in tuned]).reshape(shape),
        of_grid=loss_at(sweep, grid).reshape(shape),
        choice=Spread(variances.reshape(shape), degrees.reshape(shape)),
    )


def sums_of(sweep: CommittedSweep, studies: Studies) -> Sums:
    """Return the sums over studies."""
    chosen = studies.expected - min(sweep.losses)
    intervals = studies.intervals
    with_choice = studies.intervals_with_choice
    wider = with_choice.half / intervals.half
    return Sums(
        studies=len(studies.scores),
        wrong_of_grid=_wrong(studies.intervals_of_grid),
        wrong_of_seeds=_wrong(intervals),
        wrong=_wrong(with_choice),
        variants=chosen.size,
        by_curve=sum(of_variant.by_curve for of_variant in studies.tuned),
        loss=float(chosen.sum()),
        squared_loss=float((chosen**2).sum()),
        variance=float(studies.choice.variance.sum()),
        contrasts=wider.size,
        wider=float(wider.sum()),
    )


def _wrong(intervals: Intervals) -> int:
    """Return the number of studies with a direction."""
    return int(intervals.has_direction.any(axis=1).sum())


class Row(NamedTuple):
    """A row of the tables: a sweep and the correlation of the noise at neighbouring rates."""

    sweep: CommittedSweep
    correlation: float

    @property
    def key(self) -> str:
        return f"{self.sweep.name}; correlation {self.correlation:g}"


CORRELATIONS = (0.0, 0.5)
ROWS = tuple(Row(sweep, correlation) for correlation in CORRELATIONS for sweep in SWEEPS)


def read_results(path: Path = RESULTS) -> dict[str, Sums]:
    """Return the stored sums by key of a row."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {key: Sums(**sums) for key, sums in stored.items()}


def simulate_part(row: Row, sums: Sums) -> Sums:
    """Return the sums of a row with another part; the random numbers of a part depend on its number."""
    part = sums.studies // PART
    seed = [23, ROWS.index(row), part]
    studies = draw_studies(row.sweep, PART, np.random.default_rng(seed), row.correlation)
    return sums + sums_of(row.sweep, studies)


def simulate(studies: int, correlations: Sequence[float], path: Path = RESULTS) -> None:
    """Add parts to the stored sums until every row has a number of studies, the row with the fewest first."""
    results = read_results(path)
    rows = [row for row in ROWS if row.correlation in correlations]
    while True:
        row = min(rows, key=lambda row: results.get(row.key, Sums()).studies)
        sums = results.get(row.key, Sums())
        if sums.studies >= studies:
            return
        results[row.key] = simulate_part(row, sums)
        ordered = {row.key: asdict(results[row.key]) for row in ROWS if row.key in results}
        part_file = path.with_suffix(".part")
        part_file.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        part_file.replace(path)
        print(f"{row.key}: {results[row.key].studies:,} studies", flush=True)


HEADING = "## Tuned learning rates"
SECTION = """\
{heading}

<!-- Generated by `python benchmarks/simulated_tuning.py --write docs/concepts/simulated-studies.md`; do not edit. -->

Studies of equal variants, of which each is tuned by its own runs with the curve and the noise of a committed sweep
(`benchmarks/simulated_tuning.py`). The first columns are studies with a wrong direction, in percent ± one standard
error. *Best of the grid*: each variant has the best rate of two seeds. *Chosen*: it has the rate that a study chooses,
and the intervals are over seeds alone. *With the choice*: the intervals of a report, which also contain the choice.
Limit of this column: 5.5. *By curve*: variants at the minimum of a parabola. *Sd of the choice*: the standard deviation
of the loss at the chosen rate, beside its estimate. *Wider*: the width of an interval, divided by its width over seeds.

{missed}
"""
UNCORRELATED = "The noise of the tuning runs is independent."
CORRELATED = "The noise of a seed at neighbouring rates has a correlation of {correlation:g}."
MISSED = "Outside the limit: {rows}."
NONE_MISSED = "No row is outside its limit."
COLUMNS = (
    "sweep",
    "variants × seeds",
    "studies",
    "best of the grid",
    "chosen",
    "with the choice",
    "by curve",
    "sd of the choice",
    "estimated",
    "wider",
)
HEADER = f"| {' | '.join(COLUMNS)} |\n|---|---|{8 * '---:|'}"
LINE = (
    "| {name} | {variants} × {seeds} | {studies:,} | {of_grid} | {of_seeds} | {wrong} | {by_curve:.0f} % | {sd:.4f} | "
    "{estimated_sd:.4f} | × {wider:.2f} |"
)


def percent(number: int, of: int) -> str:
    """Return a share in percent with its standard error."""
    share = number / of
    error = math.sqrt(share * (1 - share) / of)
    return f"{100 * share:.1f} ± {100 * error:.1f}"


def line(sweep: CommittedSweep, sums: Sums) -> str:
    """Return the line of a table."""
    wrong = percent(sums.wrong, sums.studies)
    if is_missed(sums):
        wrong = f"**{wrong}**"
    return LINE.format(
        name=sweep.name,
        variants=sweep.variants,
        seeds=sweep.seeds,
        studies=sums.studies,
        of_grid=percent(sums.wrong_of_grid, sums.studies),
        of_seeds=percent(sums.wrong_of_seeds, sums.studies),
        wrong=wrong,
        by_curve=100 * sums.by_curve / sums.variants,
        sd=sums.sd,
        estimated_sd=sums.estimated_sd,
        wider=sums.wider / sums.contrasts,
    )


def is_missed(sums: Sums) -> bool:
    """Return whether the rate of wrong directions of a row is outside its limit."""
    return sums.wrong > MAX_WRONG * sums.studies


def section(results: Mapping[str, Sums]) -> str:
    """Return the section of the page: the rows outside their limit, and a table for each correlation."""
    missed = []
    tables = []
    for correlation in CORRELATIONS:
        title = CORRELATED if correlation else UNCORRELATED
        lines = [title.format(correlation=correlation), "", HEADER]
        for sweep in SWEEPS:
            row = Row(sweep, correlation)
            if row.key not in results:
                continue
            sums = results[row.key]
            lines.append(line(sweep, sums))
            if is_missed(sums):
                missed.append(f"{row.key}, {percent(sums.wrong, sums.studies)} %")
        tables.append("\n".join(lines) + "\n")
    names = MISSED.format(rows="; ".join(missed)) if missed else NONE_MISSED
    return "\n".join([SECTION.format(heading=HEADING, missed=names), *tables])


def write_section(page: Path, results: Mapping[str, Sums]) -> None:
    """Replace the section at the end of a page, or append it."""
    before, _, _ = page.read_text(encoding="utf-8").partition(HEADING)
    page.write_text(f"{before.rstrip()}\n\n{section(results)}", encoding="utf-8")


def main() -> None:
    """Simulate studies, and write the section."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--studies", type=int, default=20_000, help="studies of a row; 0 simulates none"
    )
    parser.add_argument(
        "--correlation",
        type=float,
        choices=CORRELATIONS,
        help="simulate the rows with this correlation alone",
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the section of this page")
    arguments = parser.parse_args()
    correlations = CORRELATIONS
    if arguments.correlation is not None:
        correlations = (arguments.correlation,)
    simulate(arguments.studies, correlations)
    if arguments.write:
        write_section(arguments.write, read_results())


if __name__ == "__main__":
    main()
