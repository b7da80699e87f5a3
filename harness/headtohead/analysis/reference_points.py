"""Compare the scores of models with translations that need no training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headtohead.storage.frames import Frames

NAMES = {
    "vocabulary_bound": "vocabulary upper bound",
    "nearest_neighbour": "nearest neighbour",
    "source_copy": "copied source",
    "majority": "most frequent target",
}
"""The names of the reference points in reports; the most frequent target only of data with few targets."""


@dataclass(frozen=True)
class ReferencePoints:
    """The scores of the reference points by name and metric, for one data set; ``sentences`` is the number of tests."""

    sentences: int
    scores: Mapping[str, Mapping[str, float]]

    @property
    def metrics(self) -> list[str]:
        """The metrics in which the vocabulary upper bound is above 0: in others, no model can score."""
        return [metric for metric, bound in self.scores["vocabulary_bound"].items() if bound > 0]


class ReferenceComparison(NamedTuple):
    """The mean score of a variant and the score of a reference point, in ``metric``."""

    slug: str
    metric: str
    score: float
    reference: float

    @property
    def beaten(self) -> bool:
        """Whether the variant has a higher score."""
        return self.score > self.reference


def reference_points(frames: Frames, slug: str) -> ReferencePoints | None:
    """Return the reference points of a variant's data with its ``test_limit``; only those that were computed.

    None if there are none for its data and limit, if no run of it has a record, or if its task is a text without
    metrics per sentence.

    Raises:
        KeyError: If the experiment has no variant ``slug``.
        HeadToHeadError: If ``reference_points.json`` cannot be read.
    """
    hashes = {str(value) for value in frames.rows(slug)["data_hash"].dropna()}
    limit = frames.by_slug[slug].config.evaluate.test_limit
    for entry in frames.reference_points:
        if entry.data_hash not in hashes or entry.test_limit != limit:
            continue
        if not entry.vocabulary_bound:  # a text without metrics per sentence
            return None
        scores = {}
        for name in NAMES:
            by_metric = getattr(entry, name)
            if by_metric:
                scores[name] = {f"test/{metric}": value for metric, value in by_metric.items()}
        return ReferencePoints(entry.sentences, scores)
    return None
