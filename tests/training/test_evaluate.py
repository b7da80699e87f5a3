"""Evaluation against loops, torch and direct calls of sacreBLEU."""

import math

import pytest
import sacrebleu
import torch

from headtohead.data.metrics import BLEU, CHRF, TRANSLATION
from headtohead.data.vocabulary import EOS, PAD
from headtohead.model.batch import IGNORE_INDEX
from headtohead.model.loss import label_positions
from headtohead.model.precision import peak_flops
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import EvaluateConfig
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.evaluate import (
    TeacherForced,
    Translations,
    collect,
    distinct_sources,
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


def test_sums_equal_a_loop_over_sentences_and_tokens_and_metrics_are_means(data, split):
    model = model_of(data)
    found = teacher_forced(model, split, split.padded_batches(7))
    raw = data.splits["train"]
    for row in (0, 5, 11):
        source = torch.tensor(raw.source[row]).expand(2, 1, -1)
        target = torch.tensor(raw.target[row])
        decoder_input_ids, labels = target[:-1].expand(2, 1, -1), target[1:]
        with torch.no_grad():
            logits = model(
                source, torch.full((2, 1), source.shape[-1]), decoder_input_ids, torch.full((2, 1), len(labels))
            )
        for member in range(2):
            loss, right = 0.0, 0
            for position, word in enumerate(labels.tolist()):
                scores = logits[member, 0, position].tolist()
                most = max(scores)
                loss += most + math.log(sum(math.exp(s - most) for s in scores)) - scores[word]
                right += scores.index(most) == word
            assert float(found.losses[member, row]) == pytest.approx(loss, rel=1e-5)
            assert int(found.correct[member, row]) == right
        assert int(found.num_tokens[row]) == len(labels)
    metrics = found.metrics(1)
    num_tokens = sum(len(sentence) - 1 for sentence in data.splits["train"].target)
    assert metrics["loss"] == pytest.approx(float(found.losses[1].sum()) / num_tokens)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    assert metrics["token_accuracy"] == pytest.approx(float(found.correct[1].sum()) / num_tokens)


@case_table("masking", ["padding-causal", "padding", "causal", "none"], default=2)
def test_padding_changes_losses_if_and_only_if_it_is_attended_to(data, split, masking):
    model = model_of(data, masking=masking)
    padded = teacher_forced(model, split, split.padded_batches(16))
    unpadded = teacher_forced(model, split, split.unpadded_batches(16, by_target=True))
    difference = (padded.losses - unpadded.losses).abs().max()
    hidden = masking in ("padding-causal", "padding")
    assert (difference < 1e-5) if hidden else (difference > 1e-3)
    written = [
        translate_rows(model, split, batches, translator(EvaluateConfig(), data.target_vocabulary, 6))
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


def test_projecting_only_labelled_positions_gives_the_same_losses():
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(2, 3, 4, 5, generator=generator)
    labels = torch.tensor(
        [
            [[4, 5, EOS, IGNORE_INDEX], [6, EOS, IGNORE_INDEX, IGNORE_INDEX], [7, 8, 4, EOS]],
            [
                [EOS, IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX],
                [6, EOS, IGNORE_INDEX, IGNORE_INDEX],
                [7, EOS, IGNORE_INDEX, IGNORE_INDEX],
            ],
        ]
    )
    one_row = hidden.flatten(1, 2).unsqueeze(1), labels.flatten(1).unsqueeze(1)
    chosen, packed_labels = label_positions(*one_row, 9)
    assert chosen.shape == (2, 1, 9, 5)
    for member, count in enumerate((9, 5)):
        live = labels[member] != IGNORE_INDEX
        assert torch.equal(packed_labels[member, 0, :count], labels[member][live])
        assert torch.equal(chosen[member, 0, :count], hidden[member][live])
        assert (packed_labels[member, 0, count:] == IGNORE_INDEX).all()
    everything, _ = label_positions(*one_row, 12)
    assert everything.shape == (2, 1, 12, 5)
    of_rows, row_labels = label_positions(hidden, labels.flip(2), 3)
    assert row_labels[0].tolist() == [[EOS, 5, 4], [EOS, 6, IGNORE_INDEX], [EOS, 4, 8]]
    assert torch.equal(of_rows[0, 0], hidden[0, 0, 1:])


REFERENCES = (
    ("le chat dort", "le chat est endormi"),
    ("je mange une pomme rouge",),
    ("elle lit un livre", "elle est en train de lire un livre", "elle lit"),
    ("nous y allons demain matin",),
)
HYPOTHESES = ("le chat est endormi", "je mange la pomme rouge", "elle lit un livre", "nous allons demain")
SOURCES = ("a", "b", "c", "d")


def test_bleu_and_chrf_equal_direct_calls_of_sacrebleu_with_several_references():
    found = Translations(SOURCES, REFERENCES, HYPOTHESES).scores(TRANSLATION)
    streams = [
        ["le chat dort", "je mange une pomme rouge", "elle lit un livre", "nous y allons demain matin"],
        ["le chat est endormi", None, "elle est en train de lire un livre", None],
        [None, None, "elle lit", None],
    ]
    bleu = sacrebleu.metrics.BLEU(tokenize="none", force=True)
    assert found["bleu"] == bleu.corpus_score(list(HYPOTHESES), streams).score
    chrf = sacrebleu.corpus_chrf(list(HYPOTHESES), streams).score
    assert found["chrf"] == chrf
    assert {"tok:none", "nrefs:var"} <= {*BLEU.signature(REFERENCES).split("|")}
    assert CHRF.signature(REFERENCES).startswith("nrefs:var|case:mixed")


def test_exact_match_counts_any_reference_and_whole_sentences():
    translations = Translations(SOURCES, REFERENCES, HYPOTHESES)
    assert translations.exact == [True, False, True, False]
    assert translations.scores(TRANSLATION)["exact_match"] == 0.5


def test_translations_are_matched_with_their_rows(data, split):
    model = model_of(data)
    raw = data.splits["train"]
    rows = distinct_sources(raw, 5)
    write = translator(EvaluateConfig(), data.target_vocabulary, 6)
    written = translate_rows(model, split, [torch.tensor(rows)], write)[1]
    found = collect(data, raw, rows, written)
    assert found.sources == tuple(raw.source_text[row] for row in rows)
    assert found.references == tuple(raw.references[row] for row in rows)
    for row, text in zip(rows, found.hypotheses, strict=True):
        assert text == data.target_vocabulary.decode(written[row])
        assert not {PAD, EOS} & set(written[row])


def test_distinct_sources_are_taken_once_in_order(data):
    raw = data.splits["train"]
    rows = distinct_sources(raw, None)
    texts = [raw.source_text[row] for row in rows]
    assert len(set(texts)) == len(texts)
    assert set(texts) == set(raw.source_text)
    assert rows == sorted(rows)
    assert distinct_sources(raw, 3) == rows[:3]


def test_length_buckets_are_intervals_between_adjacent_bounds():
    zeros = torch.zeros(1, 6)
    found = bucket_scores([1, 99, 5, 6, 8, 9], range(6), (), {}, TeacherForced(zeros, zeros, zeros[0] + 1), 0, (5, 8))
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
