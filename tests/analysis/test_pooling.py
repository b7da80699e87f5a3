"""Scores over several length buckets against the scores of all their sentences at once."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sacrebleu
import torch

from headtohead.analysis.scores import pooled_scores
from headtohead.data.metrics import TRANSLATION
from headtohead.storage.frames import Frames, load_frames
from headtohead.training.evaluate import TeacherForced, Translations
from headtohead.training.results import bucket_scores
from made import case_table
from made.fake_study import Study, write_study

BOUNDS = (3, 6, 9)
WORDS = ("le", "chat", "mange", "une", "pomme", "rouge")


class Planted:
    """Translations of 60 sentences by a run, with losses and tokens of each sentence."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.lengths = random.integers(1, 12, size=60).tolist()
        texts = [[str(word) for word in random.choice(WORDS, size=n)] for n in self.lengths]
        written = [
            [word if random.random() < 0.95 - 0.05 * len(text) else "non" for word in text]
            for text in texts
        ]
        self.translations = Translations(
            tuple(f"source {row}" for row in range(60)),
            tuple((" ".join(text), "non") for text in texts),
            tuple(" ".join(text) for text in written),
        )
        words = torch.tensor(self.lengths, dtype=torch.float64) + 1
        losses = torch.from_numpy(random.gamma(2.0, size=60)) * words
        self.forced = TeacherForced(losses.unsqueeze(0), torch.zeros(1, 60), words)

    def buckets(self) -> list[dict[str, Any]]:
        counts = self.translations.counts(TRANSLATION)
        found = bucket_scores(
            self.lengths, range(60), TRANSLATION, counts, partial(self.forced.counts, 0), BOUNDS
        )
        return [dict(item) for item in json.loads(json.dumps(found))]

    def naive(self, low: int, high: int) -> dict[str, float]:
        rows = [row for row, length in enumerate(self.lengths) if low <= length <= high]
        hypotheses = [self.translations.hypotheses[row] for row in rows]
        references = [self.translations.references[row] for row in rows]
        streams = [list(stream) for stream in zip(*references, strict=True)]
        bleu = sacrebleu.metrics.BLEU(tokenize="none", force=True)
        return {
            "test/bleu": bleu.corpus_score(hypotheses, streams).score,
            "test/chrf": sacrebleu.metrics.CHRF().corpus_score(hypotheses, streams).score,
            "test/loss": float(
                self.forced.losses[0][rows].sum() / self.forced.num_tokens[rows].sum()
            ),
            "test/exact_match": sum(
                hypothesis in accepted
                for hypothesis, accepted in zip(hypotheses, references, strict=True)
            )
            / len(rows),
        }


@pytest.fixture
def frames(tmp_path: Path) -> Frames:
    study = Study(axes={"positional": ["sinusoidal", "rotary"]}, maps=False, seeds=(1, 2, 3))
    return load_frames(write_study(tmp_path, study))


def with_tests(frames: Frames) -> tuple[Frames, dict[int, Planted]]:
    """Give every run of the baseline separate translations."""
    tests = {seed: Planted(seed) for seed in frames.seeds}
    rows = [
        {"run": run, **bucket, **bucket["scores"]}
        for run, seed in frames.rows(frames.baseline)["seed"].items()
        for bucket in tests[int(seed)].buckets()
    ]
    return replace(frames, buckets=pd.DataFrame(rows)), tests


@case_table("metric", ["test/bleu", "test/chrf", "test/loss", "test/exact_match"], default=6)
@case_table("lengths", [(1, 6), (4, 9), (1, 9)], default=1)
def test_scores_of_several_buckets_equal_the_scores_of_all_their_sentences(
    frames: Frames, metric: str, lengths: tuple[int, int]
) -> None:
    planted, tests = with_tests(frames)
    found = pooled_scores(planted, planted.baseline, metric, lengths)
    assert found == {
        seed: pytest.approx(test.naive(*lengths)[metric], abs=1e-9) for seed, test in tests.items()
    }


@pytest.mark.parametrize("metric", ["valid/loss", "test/loss_unpadded", "system/mfu"])
def test_metrics_without_counts_have_no_pooled_scores(frames: Frames, metric: str) -> None:
    planted, _ = with_tests(frames)
    assert pooled_scores(planted, planted.baseline, metric, (1, 9)) == {}
