"""The table of planted faults of plugin files: what `h2h run` and `h2h check` say of each."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from contract.zoo import outside
from headtohead.errors import HeadToHeadError
from headtohead.model.precision import one_thread
from headtohead.plugins.registry import current, require_override, use_files
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.checks.configurations import check_configurations
from headtohead.testing.checks.examination import evaluate
from made import separate_registry

HEAD = """## Plugin files

Each row is a plugin file with a single fault. Before the first run, `h2h run` checks it with the sizes, data and
batches of its study (width 32, two heads, blocks of 32 characters, batches of 32). `h2h check` checks it at small
sizes only.

**Refused by `h2h run`: {run} of {all}; by `h2h check`: {check} of {all}.**

| fault | `h2h run` | `h2h check` |
|---|---|---|"""


def section():
    """Run and check every fault, and return the section of the page as lines."""
    rows = []
    refused = 0
    violated = 0
    for fault in outside.FAULTS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            outside.write(fault, folder)
            run = run_outcome(fault, folder)
            check = check_outcome(fault, folder / "mine.py")
        refused += run != ""
        violated += check != ""
        missed = f"not refused: {fault.why}" if fault.why else "not refused"
        rows.append(
            f"| `{fault.name}`: {fault.description} | {run or missed} | {check or 'not refused'} |"
        )
    return [HEAD.format(run=refused, check=violated, all=len(rows)), *rows, ""]


def run_outcome(fault, folder):
    """Return what `h2h run` refuses, or an empty text."""
    command = [
        sys.executable,
        "-m",
        "headtohead.cli",
        "run",
        "fault.yaml",
        "--no-tracking",
        "--no-report",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    if named := re.search(r"violates '([\w-]+)'", done.stderr):
        return f"`{named[1]}`"
    return {"import": "at import", "build": "when the model is built"}.get(
        fault.caught_by, "in a pass"
    )


def check_outcome(fault, file):
    """Return the first invariant that `h2h check` reports as violated, or an empty text."""
    with separate_registry():
        try:
            use_files([file])
            entry = current().find(fault.family, "own")
            require_override(entry)
        except HeadToHeadError:
            return "at import"
        with one_thread():
            return first_violation(entry)


def first_violation(entry):
    """Return the first violated invariant of the small configurations of an entry, or an empty text."""
    for _, config in check_configurations(entry, current()):
        subject = Subject(config)
        for invariant in INVARIANTS:
            if evaluate(invariant, subject).outcome == "violated":
                return f"`{invariant.name}`"
    return ""
