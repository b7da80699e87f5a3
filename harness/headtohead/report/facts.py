"""What a reader should know beside the answer, one sentence each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from headtohead.analysis.study import Analysis, ceiling_verdicts
from headtohead.storage import metrics
from headtohead.storage.frames import Frames

INFORMATIVE_CEILING = 0.9
"""Above it, hardly any model reaches the ceiling, and staying below is not worth a sentence."""


def facts(analysis: Analysis) -> list[str]:
    """Return what is suspect, equal, missing or leaky, and how much seeds differ."""
    return [
        *_floor_facts(analysis),
        *_ceiling_facts(analysis),
        *_equal_facts(analysis),
        *_state_facts(analysis),
        *_leak_facts(analysis),
        *_noise_facts(analysis),
    ]


def uneven_origins(frames: Frames) -> list[str]:
    """Return signs that the runs were not all made by the same code or on the same footing."""
    found = []
    hashes: dict[tuple[str, str], set[str]] = {}
    versions: dict[str, set[str]] = {}
    devices: set[str] = set()
    backends: set[str] = set()
    notes: Counter[str] = Counter()
    for record in frames.records.values():
        for plugin in record.get("plugins", []):
            known = hashes.setdefault((plugin["family"], plugin["name"]), set())
            known.add(str(plugin.get("source_sha256")))
        for name, value in (record.get("versions") or {}).items():
            versions.setdefault(name, set()).add(str(value))
        execution = record.get("execution") or {}
        if execution:
            devices.add(f"{execution.get('device')} {execution.get('dtype')}")
        if record.get("backend"):
            backends.add(record["backend"]["name"])
        notes.update(record.get("notes") or [])
    found += [
        f"STALE: {family} {name} changed its source between runs of this experiment."
        for (family, name), known in sorted(hashes.items())
        if len(known) > 1
    ]
    found += [
        f"Runs differ in {name.replace('_', ' ')}: {', '.join(sorted(known))}."
        for name, known in sorted(versions.items())
        if len(known) > 1
    ]
    if len(devices) > 1:
        found.append(f"Runs differ in device or precision: {', '.join(sorted(devices))}.")
    if len(backends) > 1:
        found.append(f"Runs differ in their backend: {', '.join(sorted(backends))}.")
    found += [f"{count} run{'s' * (count != 1)}: {note}." for note, count in notes.items()]
    torn = int(frames.runs["torn_lines"].sum())
    if torn:
        found.append(f"{torn} lines of training histories, torn by a crash, are left out.")
    return found


def _equal_facts(analysis: Analysis) -> list[str]:
    rows = analysis.frames.experiment["variants"]
    equal = [row for row in rows if row.get("equal_to")]
    if analysis.path and equal:
        return [
            f"Of the path's {len(rows)} points {len(equal)} equal another one by construction; those were trained once."
        ]
    return [_equal_fact(analysis, row) for row in equal]


def _equal_fact(analysis: Analysis, row: Mapping[str, Any]) -> str:
    why = f": {row['equal_reason']}" if row.get("equal_reason") else ""
    pair = f"{_title(analysis, row['slug'])} equals {_title(analysis, row['equal_to'])}"
    return f"{pair} by construction{why}; it was trained once."


def _floor_facts(analysis: Analysis) -> list[str]:
    """Return a warning where every run has the worst possible score."""
    least, largest = metrics.span(analysis.metric)
    worst = least if metrics.higher_is_better(analysis.metric) else largest
    frames = analysis.frames
    scores = [frames.scores(slug, analysis.metric) for slug in frames.variants]
    values = [score for by_seed in scores for score in by_seed.values()]
    if not values or any(score != worst for score in values):
        return []
    return [
        f"Every run has the worst {metrics.readable(analysis.metric)} there is, "
        f"{metrics.show(worst, analysis.metric)}: nothing was learnt that it could see, so it "
        f"compares nothing. Train longer, or set metrics.primary to another."
    ]


def _ceiling_facts(analysis: Analysis) -> list[str]:
    verdicts = ceiling_verdicts(analysis)
    if not verdicts:
        return []
    ceiling = f"{analysis.ceiling:.3f}"
    over = [slug for slug, verdict in verdicts.items() if "suspect" in verdict]
    if over:
        names = ", ".join(_title(analysis, slug) for slug in over)
        return [f"Suspect: {names} passes the ceiling of {ceiling} that no encoder blind to word order can pass."]
    if analysis.ceiling is None or analysis.ceiling > INFORMATIVE_CEILING:
        return []
    who, stay = (
        (f"All {len(verdicts)} variants that are told no order of the source", "stay")
        if len(verdicts) > 1
        else (_title(analysis, next(iter(verdicts))), "stays")
    )
    return [f"{who} {stay} under the ceiling of {ceiling} that no encoder blind to word order can pass."]


def _state_facts(analysis: Analysis) -> list[str]:
    counts = analysis.frames.runs["state"].value_counts()
    words = {
        "DIVERGED": "diverged",
        "FAILED": "failed",
        "OOM": "ran out of memory",
        "TIMEOUT": "timed out",
        "KILLED": "were killed",
    }
    parts = [f"{counts[state]} {word}" for state, word in words.items() if state in counts]
    total = len(analysis.frames.runs)
    return [f"Of {total} runs, {', '.join(parts)}; see below."] if parts else []


def _leak_facts(analysis: Analysis) -> list[str]:
    data = analysis.frames.experiment.get("data", {})
    if not data.get("leaky"):
        return []
    return [
        f"LEAKY split: {100 * float(data['leak']):.1f} % of the test pairs have a source "
        f"sentence that is also in the training set; scores are too high."
    ]


def _noise_facts(analysis: Analysis) -> list[str]:
    noise = analysis.noise_floor
    if math.isnan(noise):
        return []
    return [f"Noise floor: the baseline's seeds have a standard deviation of {metrics.show(noise, analysis.metric)}."]


def _title(analysis: Analysis, slug: str) -> str:
    return str(analysis.frames.variants[slug]["title"])
