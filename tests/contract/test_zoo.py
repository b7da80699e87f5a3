"""The zoo of faults: the listed invariants detect every fault, and entries without a fault raise no alarm."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def load_page():
    if "zoo_page" not in sys.modules:
        spec = importlib.util.spec_from_file_location("zoo_page", HERE / "zoo" / "page.py")
        sys.modules["zoo_page"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["zoo_page"])
    return sys.modules["zoo_page"]


ZOO = load_page()
FAULTS = ZOO.faults()
PAGE = ZOO.PAGE.read_text(encoding="utf-8")
SOUND = sorted(
    (family, f"sound-{entry.__name__.lower()}")
    for family, entries in ZOO._module("sound").SOUND.items()
    for entry in entries
)


@pytest.fixture(scope="module")
def registry():
    with ZOO.registered() as current:
        yield current


def first_of_each_invariant():
    """Return the faults that an invariant catches and no fault before them."""
    caught, first = set(), []
    for fault in FAULTS:
        if set(fault.caught_by) - caught:
            first.append(fault)
        caught.update(fault.caught_by)
    return first


DEFAULT = first_of_each_invariant()
PARAMS = [fault if fault in DEFAULT else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS]


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("fault", PARAMS, ids=lambda fault: f"{fault.family}/{fault.name}")
def test_the_listed_invariants_detect_a_fault_and_the_page_lists_it(fault):
    result = ZOO.caught(fault, with_counterexample=False)
    assert fault.caught_by
    missed = {name: str(verdict) for name, verdict in result.verdicts.items() if verdict.state != "violated"}
    assert missed == {}
    row = cells(ZOO._row(result))
    (listed,) = (cells(line) for line in PAGE.splitlines() if line.startswith(f"{row[0]} | "))
    assert row[:3] == listed[:3]
    assert row[3] == listed[3] or all(abs(float(number)) < ROUNDING for number in (row[3], listed[3]))


ROUNDING = 1e-12
"""Smaller numbers are rounding errors, which differ between machines and orders of tests."""


def cells(row):
    """Return the cells of a row of the page, without the counterexample."""
    return row.split(" | ")[:4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name"), [SOUND[0], *(pytest.param(*entry, marks=pytest.mark.slow) for entry in SOUND[1:])]
)
def test_an_unusual_entry_without_a_fault_raises_no_alarm(registry, family, name):
    violations = ZOO.alarms(registry, [registry.find(family, name)])
    assert {names: str(verdict) for names, verdict in violations.items()} == {}


def test_the_page_lists_every_fault_once():
    names = [(fault.family, fault.name) for fault in FAULTS]
    assert len(names) >= 45
    assert len(set(names)) == len(names)
    assert f"**Caught: {len(names)} of {len(names)}. False alarms: 0**" in PAGE
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) == len(names)
    assert all(row.split(" | ")[4].strip(" |") for row in rows)
