"""Compare the scores of models with translations that need no training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headtohead.analysis.study import Analysis
from headtohead.storage.frames import Frames

NAMES = {
    "vocabulary_bound": "vocabulary upper bound",
    "nearest_neighbour": "nearest neighbour",
    "source_copy": "copied source",
}
"""The names of the reference points in reports, highest scores first."""

METRICS = ("test/exact_match", "test/bleu", "test/chrf")


@dataclass(frozen=True)
class ReferencePoints:
    """The scores of the reference points by name and metric, for one data set; ``sentences`` is the number of tests."""

    sentences: int
    scores: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class NeighbourComparison:
    """The mean score of a variant and the score of the nearest neighbour, in ``metric``."""

    slug: str
    metric: str
    score: float
    neighbour: float

    @property
    def beaten(self) -> bool:
        """Whether the variant has a higher score."""
        return self.score > self.neighbour


def reference_points(frames: Frames, slug: str) -> ReferencePoints | None:
    """Return the reference points of a variant's data, or None if they were not computed."""
    hashes = {str(value) for value in frames.rows(slug)["data_hash"].dropna()}
    limit = frames.by_slug[slug].config["evaluate"]["test_limit"]
    entries = [entry for entry in frames.reference_points if entry.data_hash in hashes and entry.test_limit == limit]
    if not entries:
        return None
    scores = {
        name: {
            metric: sum(getattr(entry, name)[metric.rpartition("/")[2]] for entry in entries) / len(entries)
            for metric in METRICS
        }
        for name in NAMES
    }
    return ReferencePoints(sum(entry.sentences for entry in entries), scores)


def neighbour_comparisons(analysis: Analysis, metric: str) -> list[NeighbourComparison]:
    """Compare every ranked variant with the nearest neighbour on its data."""
    frames = analysis.frames
    found = []
    for slug in analysis.ranked:
        points, summary = reference_points(frames, slug), frames.summary(slug, metric)
        if points is not None and not math.isnan(summary.mean) and frames.trained(slug) == slug:
            neighbour = points.scores["nearest_neighbour"][metric]
            found.append(NeighbourComparison(slug, metric, summary.mean, neighbour))
    return found


def translation_metrics(analysis: Analysis) -> tuple[str, str]:
    """Return the metrics in which models and nearest neighbours are compared, chrF first if it is the primary metric.

    The exact match of nearest neighbours is about 0.
    """
    return ("test/chrf", "test/bleu") if analysis.metric == "test/chrf" else ("test/bleu", "test/chrf")


def decodes(frames: Frames) -> bool:
    """Return whether a variant of the experiment translates the test sentences."""
    return any(variant.config["evaluate"]["decode"] != "none" for variant in frames.record.variants)
