"""Simulated studies that are judged at several looks: false verdicts, and seeds saved against a single look.

    python benchmarks/looks.py [--studies 10000] [--write docs/how-to/judge.md]

A study stops at the first look at which no contrast is undecided, and at the last look, as ``h2h run`` does with
sequential seeds. Scores have a standard deviation of 1 over seeds. False verdicts, at any look: better or worse with an
effect of 0, and equivalent with an effect of the margin. The sequential design of each row has the fewest seeds at its
last look with which it detects an effect of 1 in at least 80 % of the studies. The fixed design has the fewest seeds
with at least the same rate.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from headtohead.statistics import paired_tests
from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import ALPHA, POWER, paired_differences
from headtohead.statistics.verdicts import BETTER, EQUIVALENT, WORSE, Verdict, is_undecided, judge

BEGIN, END = "<!-- benchmarks/looks.py -->", "<!-- end -->"
EFFECT = 1.0
CORRELATIONS = (0.0, 0.5)
"""Correlations of the variants' scores over seeds: none, and one with which pairing halves the variance."""
NULL = ((1, 4, 20), (1, 8, 24), (3, 4, 20), (11, 4, 20))
"""Contrasts, looks and seeds at the last look of the studies with false verdicts."""
MARGIN = 1.5


@dataclass(frozen=True)
class Outcomes:
    """By study: whether a look gave one of the counted verdicts, and the number of seeds per variant at its end."""

    found: NDArray[np.bool_]
    seeds: NDArray[np.int64]


def simulate(
    generator: np.random.Generator,
    studies: int,
    looks: Looks,
    *,
    contrasts: int,
    effect: float,
    correlation: float,
    margin: float | None = None,
    counted: tuple[Verdict, ...] = (BETTER, WORSE),
) -> Outcomes:
    """Judge studies at every look by the functions of a report until no contrast is undecided."""
    scores = generator.normal(size=(studies, contrasts + 1, looks.seeds[-1])) * math.sqrt(1 - correlation)
    differences = scores[:, 1:] - scores[:, :1] + effect
    found, seeds = np.zeros(studies, dtype=bool), np.full(studies, looks.seeds[-1])
    with patch.object(paired_tests, "sign_flip_p", lambda _: math.nan):  # no verdict rests on it, and it takes long
        for index, study in enumerate(differences):
            for look in looks.seeds:
                family = [paired_differences(row[:look]) for row in study]
                verdicts = [judgement.verdict for judgement in judge(family, margin=margin, looks=looks)]
                found[index] |= any(verdict in counted for verdict in verdicts)
                if not any(map(is_undecided, verdicts, family)):
                    seeds[index] = look
                    break
    return Outcomes(found, seeds)


def false_verdicts(studies: int) -> list[str]:
    """Return table rows with the rates of studies in which a look gives a false verdict."""
    rows = []
    for contrasts, number, most in NULL:
        looks, rates = Looks.planned(number, most), []
        for effect, margin, counted in (
            (0.0, None, (BETTER, WORSE)),
            (0.0, MARGIN, (BETTER, WORSE)),
            (MARGIN, MARGIN, (EQUIVALENT,)),
        ):
            outcomes = simulate(
                np.random.default_rng(1),
                studies,
                looks,
                contrasts=contrasts,
                effect=effect,
                correlation=0.5,
                margin=margin,
                counted=counted,
            )
            rates.append(f"{100 * outcomes.found.mean():.1f} %")
        rows.append(f"| {contrasts} | {_seeds(looks.seeds)} | {' | '.join(rates)} |")
    return rows


def savings(studies: int, number: int, correlation: float) -> str:
    """Return the table row of the smallest sequential design with enough power and its fixed counterpart."""
    deviation = math.sqrt(2 * (1 - correlation))
    fixed = fixed_seeds(EFFECT / deviation, POWER)
    for most in range(fixed, 3 * fixed):
        looks = Looks.planned(number, most)
        outcomes = simulate(
            np.random.default_rng(2), studies, looks, contrasts=1, effect=EFFECT, correlation=correlation
        )
        power = float(outcomes.found.mean())
        if power >= POWER:
            break
    fixed = fixed_seeds(EFFECT / deviation, power)
    mean = float(outcomes.seeds.mean())
    return (
        f"| {correlation:g} | {_seeds(looks.seeds)} | {100 * power:.1f} % | {mean:.1f} | {fixed} | "
        f"{100 * (1 - mean / fixed):.0f} % |"
    )


def fixed_seeds(effect: float, power: float, studies: int = 200_000) -> int:
    """Return the fewest seeds with which a paired t-test detects an effect in standard deviations of differences."""
    draws = np.random.default_rng(3).standard_normal((studies, 60)) + effect
    for seeds in range(3, draws.shape[1]):
        group = draws[:, :seeds]
        t = np.abs(group.mean(axis=1)) / (group.std(axis=1, ddof=1) / math.sqrt(seeds))
        critical = float(paired_tests.stdtrit(seeds - 1, 1 - ALPHA / 2))
        if (t > critical).mean() >= power:
            return seeds
    raise ValueError(f"more than {draws.shape[1]} seeds are needed for an effect of {effect:g}")


def savings_with_known_variance(number: int, studies: int = 1_000_000) -> float:
    """Return the saving of equally spaced looks with z-tests and a power of ``POWER``: the limit of many seeds."""
    group = np.arange(1, number + 1)
    sums = np.random.default_rng(4).standard_normal((studies, number)).cumsum(axis=1)
    critical = np.quantile(np.abs(sums / np.sqrt(group)).max(axis=1), 1 - ALPHA)

    def detected(effect: float) -> NDArray[np.bool_]:
        return np.abs(sums / np.sqrt(group) + effect * np.sqrt(group)) >= critical

    effect = brentq(lambda effect: float(detected(effect).any(axis=1).mean()) - POWER, 0.1, 4.0, xtol=1e-4)
    found = detected(effect)
    looks = np.where(found.any(axis=1), found.argmax(axis=1) + 1, number).mean()
    fixed = ((ndtri(1 - ALPHA / 2) + ndtri(POWER)) / effect) ** 2
    return 1 - float(looks / fixed)


def page(studies: int) -> str:
    """Return both tables and the limit of the savings."""
    limits = {number: savings_with_known_variance(number) for number in (2, 3, 4, 5, 8, 10, 20)}
    best = max(limits, key=lambda number: limits[number])
    return "\n".join(
        [
            f"Rates in {studies:,} studies; at most 5.5 %.",
            "",
            "| contrasts | looks at seeds | false better or worse | the same with a margin | false equivalent |",
            "|---|---|---|---|---|",
            *false_verdicts(studies),
            "",
            "| correlation by seed | looks at seeds | detected | seeds on average | fixed design | fewer seeds |",
            "|---|---|---|---|---|---|",
            *(savings(studies, number, correlation) for correlation in CORRELATIONS for number in (3, 5, 8)),
            "",
            f"With a known variance instead of t-tests, 3 looks save {100 * limits[3]:.0f} %, 5 looks "
            f"{100 * limits[5]:.0f} %, and no number of looks from 2 to 20 saves more than {100 * limits[best]:.0f} % "
            f"({best} looks).",
        ]
    )


def _seeds(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def main() -> None:
    """Print the tables, or write them between the markers of a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    text = page(arguments.studies)
    if arguments.write is None:
        print(text)
        return
    before, _, rest = arguments.write.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    arguments.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
