"""The page about rules that keep a change: its numbers, its figure, and a second implementation of both."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from headtohead_judge.judging import judge
from headtohead_judge.ledger import Ledger

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("keep_rules_page")


@pytest.fixture(scope="module")
def second(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("recompute_keep_rules")


def test_page_and_figure_are_those_of_the_stored_numbers(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = page.PAGE.read_text(encoding="utf-8"), page.FIGURE.read_text(encoding="utf-8")
    numbers = json.loads(Path(page.__file__).with_name("keep_rules.json").read_text())
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "FIGURE", tmp_path / "figure.svg")
    page.write_page(numbers)
    assert committed == (page.PAGE.read_text(), page.FIGURE.read_text())
    assert set(numbers["outcomes"]["plain"]) == set(page.RULES)
    root = ElementTree.fromstring(committed[1])
    assert float(root.get("width", "0")) <= 1000
    assert float(root.get("height", "0")) <= 600
    assert {"title", "desc"} <= {child.tag.rpartition("}")[2] for child in root}


def section(text: str, rule: str) -> str:
    """Return the first table of the page with a single rule."""
    table = text.split("\n## ")[1]
    lines = [line for line in table.split("\n") if not line.startswith("|") or rule in line]
    title, *rest = lines
    return f"\n## {title}\n\n| rule | a | b | c | d | e |\n" + "\n".join(rest)


@pytest.mark.parametrize("rule", ["z-test, published σ", "bootstrap 95 %"])
def test_the_second_implementation_confirms_a_row_and_finds_a_changed_number(
    page: ModuleType, second: ModuleType, rule: str
) -> None:
    row = section(page.PAGE.read_text(encoding="utf-8"), rule)
    assert second.printed(row)["Equal sessions"].keys() == {rule}
    confirmed = [*second.comparisons(row, 40, (2.0,))]
    assert len(confirmed) == 4
    assert all(second.agree(comparison) for comparison in confirmed)
    gains = r"(\| [^|]* \| [^|]* \| [^|]* \| [^|]* / [^|]* / )([\d.]+)"
    changed, number = re.subn(gains, lambda match: f"{match[1]}{0.5 * float(match[2])}", row)
    assert number == 1
    compared = second.comparisons(changed, 40, (2.0,))
    (wrong,) = [comparison for comparison in compared if not second.agree(comparison)]
    assert str(wrong).startswith(f"Equal sessions, {rule}, 2 sd, found: ")


def test_the_rule_of_the_ledger_decides_as_the_ledger(
    benchmark: Callable[[str], ModuleType],
) -> None:
    rule = benchmark("simulated_rules").LedgerRule(6, uses_selected_run=True)
    generator = np.random.default_rng(5)
    rule.start(np.zeros((2, 6)), np.zeros(2))
    ledgers = [Ledger(Path("none"), ()), Ledger(Path("none"), ())]
    total = 0
    for change in range(12):
        candidate = generator.normal(1.5, 1.0, size=(2, 6))
        incumbent = generator.normal(0.0, 1.0, size=(2, 6))
        step = rule.step(change, candidate, incumbent)
        assert step.runs.tolist() == [12.0, 12.0]
        for chain, ledger in enumerate(ledgers):
            name = ledger.incumbent or "main"
            rows = []
            for seed in range(6):
                rows.append((f"change {change}", seed, candidate[chain, seed]))
                rows.append((name, seed, incumbent[chain, seed]))
            table = pd.DataFrame(rows, columns=["variant", "seed", "score"])
            decision = ledger.decide(judge(table, baseline=name))
            ledgers[chain] = Ledger(ledger.path, (*ledger.decisions, decision))
            assert decision.kept == step.kept[chain]
            total += decision.kept
    assert 2 <= total <= 22


def test_the_second_implementation_confirms_the_page(page: ModuleType, second: ModuleType) -> None:
    compared = [*second.comparisons(page.PAGE.read_text(encoding="utf-8"), 20, (2.0,))]
    assert len(compared) == 4 * (10 + 10 + 11 + 10)
    assert [str(comparison) for comparison in compared if not second.agree(comparison)] == []
