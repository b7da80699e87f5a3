"""The table of planted faults of plugin files: what `h2h run` and `h2h check` say of each."""

import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from contract.zoo import outside
from headtohead.errors import HeadToHeadError
from headtohead.model.precision import one_thread
from headtohead.plugins.registry import find_entry, require_override, use_files
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.checks.configurations import check_configurations
from headtohead.testing.checks.examination import worst_verdict
from made import separate_registry

HEAD = """## Plugin files

Each row is a plugin file with a single fault. Before the first run, `h2h run` checks it with the sizes, data and
batches of its study (width 32, two heads, blocks of 32 characters, batches of 32). `h2h check` checks it at small
sizes only.

**Refused by `h2h run`: {run} of {all}; by `h2h check`: {check} of {all}.**

| fault | `h2h run` | `h2h check` |
|---|---|---|"""


PROCESSES = 2

REFUSED = {
    "import": "at import",
    "build": "when the model is built",
    "reads": "when it reads",
    "global": "in a pass",
    "replaces": "in a pass",
}
"""When a fault is refused that no check is named for."""


def section():
    """Check every fault, and return the section of the page as lines.

    The column of `h2h run` is ``caught_by`` of a fault, which ``tests/contract/test_outside_faults.py`` verifies.
    """
    with ProcessPoolExecutor(max_workers=PROCESSES) as pool:
        checks = list(pool.map(checked, outside.FAULTS))
    rows = []
    for fault, check in zip(outside.FAULTS, checks, strict=True):
        run = "not refused" if fault.caught_by is None else run_outcome(fault)
        if fault.why:
            run += f": {fault.why}"
        rows.append(f"| `{fault.name}`: {fault.description} | {run} | {check or 'not refused'} |")
    refused = sum(fault.caught_by is not None for fault in outside.FAULTS)
    return [
        HEAD.format(run=refused, check=len(checks) - checks.count(""), all=len(rows)),
        *rows,
        "",
    ]


def checked(fault):
    """Return what `h2h check` reports of a fault, or an empty text."""
    with tempfile.TemporaryDirectory() as name:
        outside.write(fault, Path(name))
        return check_outcome(fault, Path(name) / "mine.py")


def run_outcome(fault):
    """Return what refuses a fault in `h2h run`."""
    return REFUSED.get(fault.caught_by, f"`{fault.caught_by}`")


def check_outcome(fault, file):
    """Return the first invariant that `h2h check` reports as violated, or an empty text."""
    with separate_registry():
        try:
            use_files([file])
            entry = find_entry(fault.family, "own")
            require_override(entry)
        except HeadToHeadError:
            return "at import"
        with one_thread():
            return first_violation(entry)


def first_violation(entry):
    """Return the first violated invariant of an entry, or an empty text, with the configurations of `h2h check`."""
    subjects = [
        (description, Subject(config)) for description, config in check_configurations(entry)
    ]
    verdicts = {}
    for invariant in INVARIANTS:
        if worst_verdict(invariant, subjects, verdicts).outcome == "violated":
            return f"`{invariant.name}`"
    return ""
