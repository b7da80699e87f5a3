"""The section of a report on the sweep that came before: what every variant was tried with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headtohead.analysis.study import Analysis
from headtohead.storage.metrics import show


@dataclass(frozen=True)
class Trial:
    """One setting of one variant: its mean loss, the spread over seeds, and whether it was best."""

    mean: str
    sd: str
    chosen: bool


@dataclass(frozen=True)
class TuningSection:
    """What a report says of a sweep: settings as columns, variants as rows."""

    settings: list[str]
    lines: list[tuple[str, list[Trial]]]
    sentences: list[str]
    metric: str


def tuning_section(analysis: Analysis) -> TuningSection | None:
    """Return the section; None for an experiment without a sweep."""
    experiment = analysis.frames.experiment
    record = experiment.get("tuning")
    if not record or not record["variants"]:
        return None
    variants, metric = record["variants"], str(record["metric"])
    first = next(iter(variants.values()))
    titles = {one["slug"]: one["title"] for one in experiment["variants"]}
    lines = [
        (titles[slug], [_trial(one, found["chosen"], metric) for one in found["tried"]])
        for slug, found in variants.items()
        if slug in titles
    ]
    edges = [titles[slug] for slug, found in variants.items() if found["at_the_edge"]]
    seeds = " and ".join(map(str, record["seeds"]))
    sentences = [
        f"Every variant was tried with the same {len(first['tried'])} settings on seeds {seeds}, "
        f"which the comparison does not use (experiment {record['experiment']}); it has the one of "
        f"lowest mean {metric}."
    ]
    if edges:
        every = "every variant" if len(edges) == len(variants) else ", ".join(edges)
        sentences.append(
            f"The best value stands at the edge of what was tried for {every}: a wider sweep may change the comparison."
        )
    names = [", ".join(f"{_last(path)} {value}" for path, value in one["values"].items()) for one in first["tried"]]
    return TuningSection(names, lines, sentences, metric)


def _trial(tried: dict[str, Any], chosen: dict[str, Any], metric: str) -> Trial:
    mean = "diverged" if tried["mean"] is None else show(tried["mean"], metric)
    sd = "" if tried["sd"] is None else f"sd {show(tried['sd'], metric)}"
    return Trial(mean, sd, tried["values"] == chosen)


def _last(path: str) -> str:
    return path.rpartition(".")[2]
