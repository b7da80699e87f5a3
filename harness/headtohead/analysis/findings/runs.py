"""Rules on the runs: their states, software and machines, and the notes and damage of their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headtohead.analysis.findings.finding import Sentence, note, warning
from headtohead.analysis.study import Analysis
from headtohead.storage import states
from headtohead.storage.metrics import counted

STALE = "STALE: {plugin} changed between runs of this experiment."
STALE_LIMIT = "{plugin} changed between runs"


@warning
def changed_plugins(analysis: Analysis) -> Iterator[Sentence]:
    """Warn of each plugin, or file that a plugin reads, whose hash differs between runs."""
    hashes: dict[str, set[str]] = {}
    for run in analysis.frames.records.values():
        for plugin in run.plugins:
            for label, sha256 in plugin.hashes.items():
                hashes.setdefault(label, set()).add(sha256)
    for label in sorted(hashes):
        if len(hashes[label]) > 1:
            yield Sentence(STALE.format(plugin=label), limit=STALE_LIMIT.format(plugin=label))


FAILED = "Of {runs} runs, {states}; see Runs."


@note
def failed_runs(analysis: Analysis) -> Iterator[Sentence]:
    """Count the runs that ended without being DONE, by state: diverged, failed, out of memory, timed out or killed."""
    by_state = analysis.frames.runs["state"].value_counts()
    counts = []
    for state in sorted(states.ABNORMAL - {states.INTERRUPTED}):
        if state in by_state:
            counts.append(f"{by_state[state]} {state}")
    if counts:
        yield Sentence(FAILED.format(runs=len(analysis.frames.runs), states=", ".join(counts)))


DIFFER = "Runs differ in {property}: {values}."


@note
def differing_software(analysis: Analysis) -> Iterator[Sentence]:
    """Name each property that differs between runs, a sentence each, with all its values.

    The properties are the versions, the device with its precision, and the backend. A run that did not record a
    property is not compared.
    """
    frames = analysis.frames
    values: dict[str, set[str]] = {}
    for run in frames.records.values():
        for name, version in sorted(run.versions.items()):
            values.setdefault(name, set()).add(str(version))
    for run in frames.records.values():
        if run.execution:
            device = f"{run.execution.device} {run.execution.dtype}"
            values.setdefault("device or precision", set()).add(device)
    for results in frames.results.values():
        if results.backend:
            values.setdefault("backend", set()).add(str(results.backend.name))
    for name, different in values.items():
        if len(different) > 1:
            shown = ", ".join(sorted(different))
            yield Sentence(DIFFER.format(property=name.replace("_", " "), values=shown))


RUN_NOTE = "{runs}: {note}."


@note
def notes_of_runs(analysis: Analysis) -> Iterator[Sentence]:
    """Repeat the notes of the runs with the number of runs that have them."""
    counts = Counter(text for results in analysis.frames.results.values() for text in results.notes)
    for text, count in counts.items():
        yield Sentence(RUN_NOTE.format(runs=counted(count, "run"), note=text))


DAMAGED = "Damaged lines of training histories, for example incomplete after a crash, are omitted: {lines}."


@note
def damaged_histories(analysis: Analysis) -> Iterator[Sentence]:
    """Count the lines of training histories that cannot be read."""
    lines = int(analysis.frames.runs["torn_lines"].sum())
    if lines:
        yield Sentence(DAMAGED.format(lines=lines))
