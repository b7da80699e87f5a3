"""Eight rules by which projects keep a change, and the ledger, on simulated chains of changes.

    python benchmarks/keep_rules.py --simulate [--chains 10000]    # benchmarks/keep_rules.json, and the page
    python benchmarks/keep_rules.py                                # the page from the stored numbers

The page is docs/results/keep-rules.md with a figure beside it. `benchmarks/recompute_keep_rules.py` recomputes its
numbers with a second implementation of chains and rules.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import simulated_rules as rules
from keep_rules_page import PAGE, write_page

NUMBERS = Path(__file__).with_name("keep_rules.json")

EFFECTS = (0.5, 1.0, 2.0)
"""Improvements by a change with an effect, in standard deviations of a run."""

BUDGET = 500
"""Number of runs after which the quality is measured."""

CHAINS = 10_000

PLAIN = rules.Setting("plain")
DRIFT = rules.Setting("drift", drift=0.5)
BEST_OF_FIVE = rules.Setting("best of five", tried=5)
HARMFUL = rules.Setting("harmful", harmful=0.4)
SETTINGS = (PLAIN, DRIFT, BEST_OF_FIVE, HARMFUL)

NEW_SEEDS = "ledger, n = 6, new seeds"
"""A rule for the setting in which an agent selects changes by one seed; in the others it equals that of the ledger."""

RULES: dict[str, rules.Rule] = {
    "better mean, n = 1": rules.BetterMean(1),
    "better mean, n = 3": rules.BetterMean(3),
    "MAD ≥ 2": rules.Mad(),
    "2σ noise floor": rules.NoiseFloor(),
    "z-test, published σ": rules.KnownDeviation(4),
    "p < 0.25": rules.LenientTest(3),
    "bootstrap 95 %": rules.Bootstrap(),
    "marin's gates": rules.MarinGates(),
    "ledger, n = 6": rules.LedgerRule(6),
    NEW_SEEDS: rules.LedgerRule(6, uses_selected_run=False),
    "ledger, n = 20": rules.LedgerRule(20),
}

Cell = dict[str, float]
"""The numbers of a rule in a setting, for an effect."""


def simulated(chains: int, rule: str, setting: rules.Setting, effect: float) -> Cell:
    """Return the rounded outcome of a rule; its random numbers depend on nothing else than the arguments."""
    seed = (
        2026,
        SETTINGS.index(setting),
        [*RULES].index(rule),
        int(10 * effect),
    )
    outcome = rules.outcome(seed, chains, RULES[rule], setting, effect, BUDGET)
    cell: Cell = {}
    for name, number in asdict(outcome).items():
        cell[name] = round(number, 5)
    print(setting.name, rule, effect, cell, flush=True)
    return cell


def of_setting(chains: int, setting: rules.Setting) -> dict[str, dict[str, Cell]]:
    """Return the outcomes in a setting by rule and effect."""
    outcomes: dict[str, dict[str, Cell]] = {}
    for rule in RULES:
        if rule == NEW_SEEDS and setting.tried == 1:
            continue
        outcomes[rule] = {}
        for effect in EFFECTS:
            key = f"{effect:g}"
            outcomes[rule][key] = simulated(chains, rule, setting, effect)
    return outcomes


def simulate(chains: int) -> None:
    """Store the outcomes by setting, rule and effect, and how they were simulated."""
    outcomes = {}
    for setting in SETTINGS:
        outcomes[setting.name] = of_setting(chains, setting)
    numbers = {"chains": chains, "budget": BUDGET, "outcomes": outcomes}
    text = json.dumps(numbers, ensure_ascii=False, indent=1)
    NUMBERS.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    description, _, _ = __doc__.partition("\n")
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--chains", type=int, default=CHAINS)
    arguments = parser.parse_args()
    if arguments.simulate:
        simulate(arguments.chains)
    text = NUMBERS.read_text(encoding="utf-8")
    write_page(json.loads(text))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
