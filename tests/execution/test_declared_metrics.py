"""Metrics that a dataset of a plugin declares are described in the record, so that reports do not need the plugin."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.schema.metric import Metric
from headtohead.storage import metrics
from headtohead.storage.experiment import MetricRecord
from made.study import TINY, Completed, Study

WORDS_MISSED = '''
"""Sentences, and the share of their words that are missed."""
import numpy as np
from headtohead.data import Metric
from headtohead.plugin import Corpus, Dataset, Pair, hookimpl


def missed(hypotheses, references):
    counts = []
    for text, (reference, *_) in zip(hypotheses, references, strict=True):
        words = reference.split()
        counts.append((sum(word not in text.split() for word in words), len(words)))
    return np.array(counts)


class Own(Dataset):
    """Made sentences."""

    metrics = (
        Metric(
            "missed",
            "missed words",
            range=(0.0, 1.0),
            higher_is_better=False,
            decimals=2,
            unit="of the words",
            per_example=missed,
            pool=lambda counts: counts[0] / counts[1],
        ),
    )

    @classmethod
    def load(cls, options, split, cache):
        words = "one two three four five".split()
        pairs = []
        for number in range(200):
            source = " ".join(words[number // 5**place % 5] for place in range(4))
            pairs.append(Pair(source, source, group=source))
        return Corpus(pairs=pairs, licence="CC0", citation="made", languages=("A", "B"))


@hookimpl
def register_datasets():
    return {"own": Own}
'''


CONTENT = TINY | {"base": TINY["base"] | {"data": {"dataset": "own"}}}


@pytest.fixture
def finished(tmp_path: Path, cache: Path, h2h_here: Callable[..., Completed]) -> Study:
    """A study of the dataset, finished with its report."""
    study = Study(tmp_path, cache, h2h_here, CONTENT)
    design = [{"one_at_a_time": {"positional": ["rotary"]}}]
    study.write(plugin=WORDS_MISSED, base={"train": {"steps": 4}}, design=design)
    study.run()
    return study


def test_a_report_without_the_plugin_has_the_metrics_of_the_dataset(finished: Study) -> None:
    answer = finished.answer()
    declared = json.loads((finished.experiment / "experiment.json").read_text())["metrics"][
        "declared"
    ]
    assert declared == {
        "missed": {
            "label": "missed words",
            "low": 0.0,
            "high": 1.0,
            "higher_is_better": False,
            "decimals": 2,
            "unit": "of the words",
        }
    }
    (finished.folder / "mine.py").unlink()
    finished.h2h("report", "runs/tiny")
    without = finished.answer()
    assert without["metric"] == answer["metric"] == "test/missed"
    assert "missed words" in finished.page()
    assert "load its plugin with --plugin" in finished.page()


def test_a_record_that_is_read_describes_its_metrics(own_registry: None) -> None:
    with pytest.raises(HeadToHeadError, match="no dataset declares the metric 'test/missed'"):
        metrics.higher_is_better("test/missed")
    for low in (0.0, None):
        record = MetricRecord(
            label="", low=low, high=None, higher_is_better=False, decimals=1, unit=""
        )
        metrics.describe([record.metric("missed")])
        assert not metrics.higher_is_better("test/missed")
        assert metrics.in_range("test/missed", -1.0) == (low is None)
        assert MetricRecord.of(metrics.find("test/missed")) == record
    metrics.describe([Metric("exact_match", higher_is_better=False)])
    assert metrics.higher_is_better("test/exact_match")
