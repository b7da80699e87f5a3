"""The zoo of faults: the listed invariants detect every fault, and entries without a fault raise no alarm."""

import pytest

from contract.zoo import outside
from contract.zoo import page as ZOO
from contract.zoo.sound import SOUND
from headtohead.plugins.registry import find_entry
from made import case_table

FAULTS = ZOO.faults()
PAGE = ZOO.PAGE.read_text(encoding="utf-8")
NAMES = sorted(
    (family, f"sound-{entry.__name__.lower()}")
    for family, entries in SOUND.items()
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


FIRST = first_of_each_invariant()
RAISES = {
    "left-behind",
    "too-few-slopes",
    "doubles",
    "sink-in-place",
    "unseeded-learned",
    "unseeded-gain",
}
"""The faults that raise an exception. If another one raises, a change of the package has broken the fault itself."""
ORDERED = [*FIRST, *(fault for fault in FAULTS if fault not in FIRST)]


@pytest.mark.usefixtures("registry")
@case_table("fault", ORDERED, ids=lambda fault: f"{fault.family}/{fault.name}", default=len(FIRST))
def test_the_listed_invariants_detect_a_fault(fault):
    verdicts = ZOO.caught(fault)
    assert fault.caught_by
    missed = {
        name: str(verdict) for name, verdict in verdicts.items() if verdict.state != "violated"
    }
    assert missed == {}
    raised = [verdict.error for verdict in verdicts.values() if verdict.error is not None]
    assert bool(raised) == (fault.name in RAISES), raised


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), NAMES)
def test_an_unusual_entry_without_a_fault_raises_no_alarm(registry, family, name):
    violations = ZOO.alarms(registry, [find_entry(family, name)])
    assert {names: str(verdict) for names, verdict in violations.items()} == {}


def test_the_page_lists_every_fault_once():
    names = [(fault.family, fault.name) for fault in FAULTS]
    assert len(names) >= 45
    assert len(set(names)) == len(names)
    invariants, plugin_files = PAGE.split("## Plugin files")
    assert len(rows_of(invariants)) == len(names)
    assert len(rows_of(plugin_files)) == len(outside.FAULTS)


def rows_of(page):
    return [line for line in page.splitlines() if line.startswith("| `")]
