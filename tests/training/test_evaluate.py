"""Evaluation against loops, torch and direct calls of sacreBLEU."""

import math
from functools import partial

import pytest
import torch

from headtohead.data.vocabulary import EOS, PAD
from headtohead.errors import HeadToHeadError
from headtohead.model.precision import peak_flops
from headtohead.model.transformer import Transformer
from headtohead.schema.metric import Metric
from headtohead.schema.run_config import EvaluateConfig
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.evaluate import (
    TeacherForced,
    Translations,
    collect,
    teacher_forced,
    translate_rows,
    translator,
)
from headtohead.training.loop import StackTraining
from headtohead.training.results import bucket_scores, cost_metrics
from headtohead.training.tensors import SplitTensors
from made import case_table, moved


@pytest.fixture(scope="module")
def data():
    return tiny_data()


def model_of(data, **choices):
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    return moved(Transformer(tiny_config(**choices), [1, 2], *words).double())


@pytest.fixture(scope="module")
def split(data):
    return SplitTensors.of(data.splits["train"], torch.device("cpu"))


@case_table("masking", ["padding-causal", "padding", "causal", "none"], default=2)
def test_padding_changes_losses_if_and_only_if_it_is_attended_to(data, split, masking):
    model = model_of(data, masking=masking)
    padded = teacher_forced(model, split, split.padded_batches(16))
    unpadded = teacher_forced(model, split, split.unpadded_batches(16, by_target=True))
    difference = (padded.losses - unpadded.losses).abs().max()
    hidden = masking in ("padding-causal", "padding")
    assert (difference < 1e-5) if hidden else (difference > 1e-3)
    written = [
        translate_rows(
            model, split, batches, translator(EvaluateConfig(), data.target_vocabulary, 6)
        )
        for batches in (split.padded_batches(16), split.unpadded_batches(16, by_target=False))
    ]
    assert (written[0] == written[1]) or not hidden


def test_losses_do_not_depend_on_batch_size_and_chunk_size(data, split, monkeypatch):
    model = model_of(data)
    whole = teacher_forced(model, split, split.padded_batches(60))
    monkeypatch.setattr("headtohead.training.evaluate.CHUNK_LOGITS", 1)
    pieces = teacher_forced(model, split, split.padded_batches(60))
    torch.testing.assert_close(pieces.losses, whole.losses, rtol=0, atol=1e-5)
    assert torch.equal(pieces.correct, whole.correct)


def test_translations_are_matched_with_their_rows(data, split):
    model = model_of(data)
    raw = data.splits["train"]
    rows = raw.distinct_sources(5)
    write = translator(EvaluateConfig(), data.target_vocabulary, 6)
    written = translate_rows(model, split, [torch.tensor(rows)], write)[1]
    found = collect(data, raw, rows, written)
    assert found.sources == tuple(raw.source_text[row] for row in rows)
    assert found.references == tuple(raw.references[row] for row in rows)
    for row, text in zip(rows, found.hypotheses, strict=True):
        assert text == data.decode(written[row])
        assert not {PAD, EOS} & set(written[row])


@pytest.mark.parametrize("counts", [[[1.0], [math.nan]], [[1.0]], [1.0, 1.0]])
def test_a_metric_must_count_every_output(counts):
    metric = Metric("own", per_example=lambda outputs, references: counts)
    with pytest.raises(
        HeadToHeadError, match=r"per_example of metric 'own' .* return a row of finite counts"
    ):
        Translations(("a", "b"), (("a",), ("b",)), ("a", "c")).counts([metric])


def test_a_metric_whose_counts_depend_on_other_outputs_is_refused():
    metric = Metric("own", per_example=lambda outputs, references: [[len(outputs)]] * len(outputs))
    translations = Translations(("a",) * 12, (("a",),) * 12, ("a",) * 12)
    with pytest.raises(HeadToHeadError, match="depend on it and its references alone"):
        translations.counts([metric])


def test_distinct_sources_are_taken_once_in_order(data):
    raw = data.splits["train"]
    rows = raw.distinct_sources(None)
    texts = [raw.source_text[row] for row in rows]
    assert len(set(texts)) == len(texts)
    assert set(texts) == set(raw.source_text)
    assert rows == sorted(rows)
    assert raw.distinct_sources(3) == raw.distinct_sources(3) != rows[:3], (
        "a sorted file has its shortest first"
    )
    assert raw.distinct_sources(len(rows) + 1) == rows


def test_length_buckets_are_intervals_between_adjacent_bounds():
    zeros = torch.zeros(1, 6)
    found = bucket_scores(
        [1, 99, 5, 6, 8, 9],
        range(6),
        (),
        {},
        partial(TeacherForced(zeros, zeros, zeros[0] + 1).counts, 0),
        (5, 8),
    )
    assert [tuple(part[name] for name in ("bucket", "low", "high", "n")) for part in found] == [
        ("1-5", 1, 5, 2),
        ("6-8", 6, 8, 2),
        ("9+", 9, None, 2),
    ]


def test_every_member_counts_with_its_own_tokens_and_flops():
    config = tiny_config(train={"steps": 3, "precision": "float32"})
    training = StackTraining(config, [1, 2], tiny_data(), torch.device("cpu"))
    training.run()
    tokens = training.token_sums.tolist()
    costs = cost_metrics(training, [1e6, 3e6])
    flops = 3 * (1e6 * tokens[0] + 3e6 * tokens[1])  # a training step costs three forward passes
    expected = flops / costs["system/train_seconds"] / peak_flops("cpu", "float32")
    assert min(tokens) > 0
    assert costs["system/mfu"] == pytest.approx(expected)
