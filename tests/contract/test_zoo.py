"""The zoo: every fault is caught by who should catch it, and nothing sound raises an alarm."""

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
    (family, f"sound-{one.__name__.lower()}")
    for family, entries in ZOO._module("sound").SOUND.items()
    for one in entries
)


@pytest.fixture(scope="module")
def registry():
    with ZOO.registered() as found:
        yield found


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: f"{one.family}/{one.name}")
def test_a_fault_is_caught_by_the_invariants_that_should_and_the_page_says_so(fault):
    found = ZOO.caught(fault, with_example=False)
    assert fault.caught_by
    missed = {name: str(one) for name, one in found.verdicts.items() if one.state != "broken"}
    assert missed == {}
    row = cells(ZOO._row(found))
    (listed,) = (cells(line) for line in PAGE.splitlines() if line.startswith(f"{row[0]} | "))
    assert row[:3] == listed[:3]
    numbers = row[3], listed[3]
    assert row[3] == listed[3] or all(abs(float(one)) < ROUNDING for one in numbers)


ROUNDING = 1e-12
"""Numbers below this are rounding errors, which differ between machines and orders of tests."""


def cells(row):
    """Return the cells of a row of the page, without the smallest example."""
    return row.split(" | ")[:4]


FIRST = {family: (family, name) for family, name in reversed(SOUND)}


@pytest.mark.parametrize(
    ("family", "name"), [one if one == FIRST[one[0]] else pytest.param(*one, marks=pytest.mark.slow) for one in SOUND]
)
def test_an_unusual_entry_without_a_fault_raises_no_alarm(registry, family, name):
    found = ZOO.alarms(registry, [registry.find(family, name)])
    assert {what: str(verdict) for what, verdict in found.items()} == {}


def test_the_zoo_has_the_faults_that_it_says_and_each_once():
    names = [(one.family, one.name) for one in FAULTS]
    assert len(names) >= 45
    assert len(set(names)) == len(names)
    assert f"**Caught: {len(names)} of {len(names)}. False alarms: 0**" in PAGE
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) == len(names)
    assert all(row.split(" | ")[4].strip(" |") for row in rows)
