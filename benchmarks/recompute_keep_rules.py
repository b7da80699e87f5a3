"""Recompute docs/results/keep-rules.md with a second implementation: one chain after another, run by run.

    python benchmarks/recompute_keep_rules.py [--chains 200]

It shares no code with `keep_rules`, except that the ledger is that of `headtohead_judge`. The exit code is 1 if a
number of the page differs by more than the errors of both simulations explain.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from scipy.special import stdtr

from headtohead_judge.judging import judge
from headtohead_judge.ledger import Ledger

PAGE = Path(__file__).parents[1] / "docs" / "results" / "keep-rules.md"

CHANGES = 50
BUDGET = 500
EFFECTS = (0.5, 1.0, 2.0)
SHARED = 0.3
FIELDS = ("noise", "chains", "found", "runs", "quality")
ERRORS = 4.5
"""Largest difference that is accepted, in standard errors."""


@dataclass
class Chain:
    """A chain of changes: the incumbent, what a rule has stored, and the runs so far."""

    rng: random.Random
    drift: float
    mean: float = 0.0
    session: float = 0.0
    runs: int = 0
    by_seed: dict[int, float] = field(default_factory=dict)
    stored: list[float] = field(default_factory=list)
    history: list[float] = field(default_factory=list)
    ledger: Ledger = field(default_factory=lambda: Ledger(Path("none"), ()))
    names: Iterator[int] = field(default_factory=itertools.count)

    def new_session(self) -> None:
        self.session = self.rng.gauss(0, self.drift)

    def noise(self) -> float:
        return self.rng.gauss(0, math.sqrt(1 - SHARED))

    def run(self, seed: int, gain: float = 0.0, noise: float | None = None) -> float:
        """Return the score of a run of the incumbent, or with a gain of a candidate."""
        self.runs += 1
        if seed not in self.by_seed:
            self.by_seed[seed] = self.rng.gauss(0, math.sqrt(SHARED))
        if noise is None:
            noise = self.noise()
        of_seed = self.by_seed[seed]
        return self.mean + self.session + gain + noise + of_seed


Candidate = Callable[[int], float]
"""Trains the candidate with a seed and returns its score."""

Stored = list[float] | None
"""The scores that are stored if the candidate is kept, else None."""

Decide = Callable[[Chain, Candidate], Stored]
"""Trains a candidate and decides."""


@dataclass(frozen=True)
class Rule:
    """A rule: its decision, and the number of runs of the baseline that it stores first."""

    decide: Decide
    first_runs: int
    uses_selected_run: bool = True


def by_mean(runs: int) -> Rule:
    def decide(chain: Chain, candidate: Candidate) -> Stored:
        scores = [candidate(seed) for seed in range(runs)]
        if sum(scores) > sum(chain.stored):
            return scores
        return None

    return Rule(decide, runs)


def by_mad(chain: Chain, candidate: Candidate) -> Stored:
    if not chain.history:
        chain.history.append(chain.stored[0])
    score = candidate(0)
    chain.history.append(score)
    if score <= chain.stored[0] or len(chain.history) < 3:
        return None
    middle = statistics.median(chain.history)
    deviation = statistics.median([abs(value - middle) for value in chain.history])
    first = chain.history[0]
    if abs(score - first) >= 2 * deviation:
        return [score]
    return None


def by_noise_floor(chain: Chain, candidate: Candidate) -> Stored:
    if len(chain.stored) == 2:  # the first change
        first, second = chain.stored
        chain.history = [abs(first - second)]
        chain.stored = [first]
    score = candidate(0)
    floor = 2 * chain.history[0]
    if score - chain.stored[0] >= floor:
        return [score]
    return None


def by_z_test(chain: Chain, candidate: Candidate) -> Stored:
    scores = [candidate(seed) for seed in range(4)]
    difference = statistics.fmean(scores) - statistics.fmean(chain.stored)
    z = difference * math.sqrt(4)
    p = 1 - statistics.NormalDist().cdf(z)
    if p < 0.001:
        return scores
    return None


def by_lenient_test(chain: Chain, candidate: Candidate) -> Stored:
    scores = [candidate(seed) for seed in range(3)]
    new = statistics.variance(scores) / 3
    old = statistics.variance(chain.stored) / 3
    degrees = (new + old) ** 2 / (new**2 / 2 + old**2 / 2)
    difference = statistics.fmean(scores) - statistics.fmean(chain.stored)
    t = difference / math.sqrt(new + old)
    p = stdtr(degrees, -t)
    if p < 0.25:
        return scores
    return None


def by_bootstrap(chain: Chain, candidate: Candidate) -> Stored:
    scores = [candidate(0)]
    if scores[0] <= statistics.fmean(chain.stored):
        return None
    scores += [candidate(1), candidate(2)]
    of_stored = [sum(sample) for sample in itertools.product(chain.stored, repeat=3)]
    wins = 0
    for sample in itertools.product(scores, repeat=3):
        total = sum(sample)
        wins += sum(total > old for old in of_stored)
    if wins / 27**2 >= 0.95:
        return scores
    return None


FLOPS = (3.82e17, 2.81e18, 1.16e19, 3.46e19)
SD_OF_LOSS = 0.001


def by_gates(chain: Chain, candidate: Candidate) -> Stored:
    """Train at each scale; a score of 1 is a loss that is smaller by `SD_OF_LOSS`."""
    scores: list[float] = []
    for gate in ((0, 1), (2, 3)):
        scores += [candidate(scale) for scale in gate]
        for score, stored in zip(scores, chain.stored, strict=False):
            if score <= stored:
                return None
    for budget in (1e21, 1e23):
        if projected(scores, budget) >= projected(chain.stored, budget):
            return None
    return scores


def projected(scores: list[float], budget: float) -> float:
    """Return the loss at a budget of 1.6 + A C^-a, fitted to the losses at the four scales."""
    logs = []
    for flops, score in zip(FLOPS, scores, strict=True):
        reducible = 88.32 * flops**-0.0941 - SD_OF_LOSS * score
        logs.append(math.log(reducible))
    log_flops = [math.log(flops) for flops in FLOPS]
    slope, intercept = statistics.linear_regression(log_flops, logs)
    log_projected = intercept + slope * math.log(budget)
    return 1.6 + math.exp(log_projected)


def by_ledger(seeds: int, *, uses_selected_run: bool = True) -> Rule:
    """Return the rule of the ledger of `headtohead_judge`."""

    def decide(chain: Chain, candidate: Candidate) -> Stored:
        name = f"change {next(chain.names)}"
        incumbent = chain.ledger.incumbent or "main"
        rows = []
        for seed in range(seeds):
            rows.append((name, seed, candidate(seed)))
            rows.append((incumbent, seed, chain.run(seed)))
        table = pd.DataFrame(rows, columns=["variant", "seed", "score"])
        judged = judge(table, baseline=incumbent)
        decision = chain.ledger.decide(judged)
        decisions = (*chain.ledger.decisions, decision)
        chain.ledger = Ledger(chain.ledger.path, decisions)
        if decision.kept:
            return []
        return None

    return Rule(decide, 0, uses_selected_run)


RULES = {
    "better mean, n = 1": by_mean(1),
    "better mean, n = 3": by_mean(3),
    "MAD ≥ 2": Rule(by_mad, 1),
    "2σ noise floor": Rule(by_noise_floor, 2),
    "z-test, published σ": Rule(by_z_test, 4),
    "p < 0.25": Rule(by_lenient_test, 3),
    "bootstrap 95 %": Rule(by_bootstrap, 3),
    "marin's gates": Rule(by_gates, 4),
    "ledger, n = 6": by_ledger(6),
    "ledger, n = 6, new seeds": by_ledger(6, uses_selected_run=False),
    "ledger, n = 20": by_ledger(20),
}


@dataclass(frozen=True)
class Setting:
    drift: float = 0.0
    tried: int = 1
    harmful: float = 0.0


SETTINGS = {
    "Equal sessions": Setting(),
    "Drift between sessions": Setting(drift=0.5),
    "The best of five by one seed": Setting(tried=5),
    "Harmful changes": Setting(harmful=0.4),
}


def started(rng: random.Random, rule: Rule, setting: Setting, *, name: str) -> Chain:
    """Return a chain after the first runs of the baseline; the noise floor repeats one seed."""
    chain = Chain(rng, setting.drift)
    chain.new_session()
    is_repeated = name == "2σ noise floor"
    chain.stored = [chain.run(0 if is_repeated else run) for run in range(rule.first_runs)]
    return chain


def change(chain: Chain, rule: Rule, setting: Setting, effect: float) -> tuple[bool, float]:
    """Try a change; return whether it is kept, and its gain."""
    tried = []
    for _ in range(setting.tried):
        kind = chain.rng.random()
        gain = 0.0
        if kind < 0.2:
            gain = effect
        elif kind < 0.2 + setting.harmful:
            gain = -effect
        tried.append((gain, chain.noise()))
    gain, selected_noise = max(tried, key=sum)
    chain.new_session()
    is_selected = setting.tried > 1
    is_first_reused = is_selected and rule.uses_selected_run
    if is_selected:
        chain.runs += setting.tried - is_first_reused

    def candidate(seed: int) -> float:
        if is_first_reused and seed == 0:
            return chain.run(seed, gain, selected_noise)
        return chain.run(seed, gain)

    stored = rule.decide(chain, candidate)
    if stored is None:
        return False, gain
    chain.stored = stored
    chain.mean += gain
    return True, gain


@dataclass(frozen=True)
class Measured:
    """A number with its standard error."""

    value: float
    error: float


def fraction(hits: int, number: int) -> Measured:
    """Return a percentage; its error allows for decisions of one chain that depend on each other."""
    if not number:
        return Measured(math.nan, math.nan)
    chance = (hits + 1) / (number + 2)
    variance = 2 * chance * (1 - chance) / number
    return Measured(100 * hits / number, 100 * math.sqrt(variance))


def mean(values: list[float], unit: float = 0.0) -> Measured:
    """Return a mean; sums of gains of size ``unit`` have at least the error of a Poisson count of them."""
    number = len(values)
    value = statistics.fmean(values)
    error = statistics.pstdev(values) / math.sqrt(max(1, number - 1))
    least = math.sqrt(unit * (abs(value) * number + unit)) / number
    return Measured(value, max(error, least))


def measure(
    name: str, setting: Setting, effect: float, chains: int, seed: str
) -> dict[str, Measured]:
    """Return noise, gains, runs and quality of a rule over some chains."""
    rng = random.Random(seed)
    rule = RULES[name]
    kept_improvements = 0
    kept_noise = 0
    with_noise = 0
    improvements = 0
    runs: list[float] = []
    quality: list[float] = []
    for _ in range(chains):
        chain = started(rng, rule, setting, name=name)
        noise = 0
        for _ in range(CHANGES):
            is_kept, gain = change(chain, rule, setting, effect)
            is_improvement = gain > 0
            improvements += is_improvement
            if is_kept:
                kept_improvements += is_improvement
                noise += not is_improvement
        kept_noise += noise
        with_noise += noise > 0
        runs.append(chain.runs)
        chain = started(rng, rule, setting, name=name)
        reached = 0.0
        while True:
            change(chain, rule, setting, effect)
            if chain.runs > BUDGET:
                break
            reached = chain.mean
        quality.append(reached)
    return {
        "noise": fraction(kept_noise, kept_noise + kept_improvements),
        "chains": fraction(with_noise, chains),
        "found": fraction(kept_improvements, improvements),
        "runs": mean(runs),
        "quality": mean(quality, effect),
    }


Cells = dict[str, tuple[float, ...]]
"""The numbers of a row of the page by field."""


def printed(page: str) -> dict[str, dict[str, Cells]]:
    """Return the tables of the page by setting and rule."""
    found: dict[str, dict[str, Cells]] = {}
    for section in page.split("\n## ")[1:]:
        title = section.split("\n")[0]
        rows = found.setdefault(title, {})
        for line in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[1:]:
            name, *cells = line.split(" | ")
            numbers = []
            for cell in cells:
                texts = cell.replace(",", "").replace("–", "nan").split(" / ")
                numbers.append(tuple(float(text) for text in texts))
            rows[name] = dict(zip(FIELDS, numbers, strict=True))
    return found


@dataclass(frozen=True)
class Comparison:
    """A number of the page beside the measured one; ``where`` names its table, rule, effect and column."""

    where: str
    on_page: float
    measured: Measured

    def __str__(self) -> str:
        measured = self.measured
        return f"{self.where}: {self.on_page:g}, not {measured.value:.3g} ± {measured.error:.2g}"


def comparisons(
    page: str, chains: int, effects: tuple[float, ...] = EFFECTS
) -> Iterator[Comparison]:
    """Yield each number of the page, measured again."""
    for title, rows in printed(page).items():
        for name, cells in rows.items():
            few = chains
            if name.startswith("ledger"):
                few = max(2, chains // 40)
            for effect in effects:
                where = f"{title}, {name}, {effect:g} sd"
                found = measure(name, SETTINGS[title], effect, few, where)
                yield from of_row(cells, effect, found, where)


def of_row(
    cells: Cells, effect: float, found: dict[str, Measured], where: str
) -> Iterator[Comparison]:
    """Yield the numbers of a row for an effect; the page has the runs of 1 sd only."""
    position = EFFECTS.index(effect)
    for column, measured in found.items():
        if column != "runs":
            yield Comparison(f"{where}, {column}", cells[column][position], measured)
        elif effect == 1.0:
            yield Comparison(f"{where}, {column}", cells[column][0], measured)


def agree(comparison: Comparison) -> bool:
    """Return whether a number of the page agrees with the measured one, with its rounding and its own error."""
    on_page = comparison.on_page
    measured = comparison.measured
    if math.isnan(on_page) or math.isnan(measured.value):
        return True
    rounding = 0.051
    if on_page >= 9.95 or comparison.where.endswith("runs"):
        rounding = 0.51
    tolerance = ERRORS * measured.error + rounding + 0.03 * on_page
    return abs(on_page - measured.value) <= tolerance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chains", type=int, default=200)
    chains = parser.parse_args().chains
    page = PAGE.read_text(encoding="utf-8")
    number = 0
    confirmed = 0
    for comparison in comparisons(page, chains):
        number += 1
        if agree(comparison):
            confirmed += 1
        else:
            print(comparison, flush=True)
    print(f"{confirmed} of {number} numbers of the page are confirmed")
    sys.exit(confirmed < number)


if __name__ == "__main__":
    main()
