"""All decodings, and scores without padding, against loops over single sentences; batches with and without padding."""

import math

import numpy as np
import pytest
import torch

from headtohead.data import SPECIALS, Split, Vocabulary
from headtohead.data.tokeniser import Tokeniser, Unit
from headtohead.data.vocabulary import EOS, SOS
from headtohead.errors import HeadToHeadError
from headtohead.model.batch import IGNORE_INDEX
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import EvaluateConfig, changed
from headtohead.testing.tiny import tiny_config
from headtohead.training.evaluate import (
    score,
    teacher_forced,
    translate_non_autoregressive,
    translate_rows,
    translate_teacher_forced,
    translator,
)
from headtohead.training.tensors import SplitTensors
from headtohead_notebooks.quirks import NotebookOptions, NotebookQuirks
from made import moved

WORDS = 11


def model_of(members=2, words=WORDS, **choices):
    return moved(Transformer(tiny_config(**choices), list(range(members)), words, words)).double()


def split_of(sources, targets, **more):
    ids = [[np.array(sentence, dtype=np.int32) for sentence in side] for side in (sources, targets)]
    texts = [""] * len(sources)
    split = Split(*ids, texts, texts, [("",)] * len(sources), [])
    return SplitTensors.of(split, torch.device("cpu"), **more)


def change_of(shift_targets):
    """Return the change of batches that leaves targets shifted, or not."""
    return NotebookQuirks(NotebookOptions(shift_targets=shift_targets)).change_batch


def drawn(count=12, lowest=0, seed=3):
    dice = np.random.default_rng(seed)
    return [dice.integers(lowest, WORDS, 1 + row % 5).tolist() for row in range(count)]


def unpadded_logits(model, source, decoder_input_ids):
    """Return the logits of a sentence in a batch of its own, ``[member, time, vocab]``."""

    def expand(ids):
        return torch.tensor(ids).expand(model.members, 1, -1)

    def lengths(ids):
        return torch.full((model.members, 1), len(ids))

    with torch.no_grad():
        return model(
            expand(source), lengths(source), expand(decoder_input_ids), lengths(decoder_input_ids)
        )[:, 0]


BATCHES = [torch.arange(0, 7), torch.arange(7, 12)]


def test_non_autoregressive_decoding_takes_the_likeliest_id_per_position_without_0():
    model, sources = model_of(), drawn()
    with torch.no_grad():
        model.lm_head.bias[..., 0] += 1.5
    split = split_of(sources, [[1, 2]] * 12)
    found = translate_rows(model, split, BATCHES, translate_non_autoregressive)
    dropped = 0
    for row, source in enumerate(sources):
        logits = unpadded_logits(model, source, [0] * len(source))
        for member in range(2):
            best = [int(torch.argmax(position)) for position in logits[member]]
            assert found[member][row] == [word for word in best if word != 0]
            dropped += best.count(0)
    assert 0 < dropped < 2 * sum(len(source) for source in sources)


@pytest.mark.parametrize(
    ("shift_targets", "masking"),
    [(True, "padding-causal"), (False, "padding-causal"), (True, "none")],
)
def test_teacher_forced_ids_are_the_likeliest_after_the_target_prefix(shift_targets, masking):
    """Without masks, those of batches without padding."""
    model, sources = model_of(masking=masking), drawn()
    targets = [
        drawn(seed=8)[5 * row % 12] for row in range(12)
    ]  # sources of a length have targets of several lengths
    split = split_of(sources, targets, change=change_of(shift_targets))
    if masking == "none":
        model.config = changed(model.config, evaluate={"decode": "teacher-forced"})
        found = score(
            model, split, list(range(12)), translate_teacher_forced, padded=False
        ).translations
    else:
        found = translate_rows(model, split, BATCHES, translate_teacher_forced)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        decoder_input_ids = target[:-1] if shift_targets else target
        for member in range(2):
            expected = []
            if decoder_input_ids:
                logits = unpadded_logits(model, source, decoder_input_ids)[member]
                expected = [int(torch.argmax(position)) for position in logits]
            assert found[member][row] == expected


@pytest.mark.parametrize("shift_targets", [True, False])
def test_losses_include_id_0_and_exclude_padding_and_metrics_are_means(shift_targets):
    model, sources, targets = model_of(), drawn(), drawn(seed=8)
    split = split_of(sources, targets, change=change_of(shift_targets))
    found = teacher_forced(model, split, BATCHES)
    num_tokens, totals, correct = 0, [0.0, 0.0], [0, 0]
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        decoder_input_ids, labels = (target[:-1], target[1:]) if shift_targets else (target, target)
        assert int(found.num_tokens[row]) == len(labels)
        num_tokens += len(labels)
        chances = unpadded_logits(model, source, decoder_input_ids).softmax(-1) if labels else None
        for member in range(2):
            words = enumerate(labels)
            own = [(chances[member, place], word) for place, word in words] if labels else []
            loss = -sum(float(torch.log(by_word[word])) for by_word, word in own)
            right = sum(int(by_word.argmax()) == word for by_word, word in own)
            assert float(found.losses[member, row]) == pytest.approx(loss, abs=1e-5)
            assert int(found.correct[member, row]) == right
            totals[member] += loss
            correct[member] += right
    assert any(0 in target[1:] for target in targets)
    for member in range(2):
        loss = totals[member] / num_tokens
        expected = {
            "loss": loss,
            "perplexity": math.exp(loss),
            "token_accuracy": correct[member] / num_tokens,
        }
        assert found.metrics(member) == pytest.approx(expected)


def test_greedy_decoding_starts_and_stops_with_the_vocabularys_own_tokens():
    """Renumbering the tokens of model and data changes no translation."""
    standard = Vocabulary([*SPECIALS, *"abcdefg"])
    order = [7, 2, 10, 5, 0, 3, 9, 1, 4, 8, 6]
    other = Vocabulary([standard.words[index] for index in order])
    assert (other.pad, other.unk, other.sos, other.eos) == (4, 7, 1, 5)
    model, sources = model_of(), [ids[1:] or [5] for ids in drawn(lowest=4)]
    moved = model_of()
    with torch.no_grad():
        for translated in (model, moved):
            translated.lm_head.bias[..., 3] += 1.5
        for layer in (moved.source_embedding, moved.target_embedding):
            layer.weight.copy_(layer.weight[:, order].clone())
        for part in (moved.lm_head.weight, moved.lm_head.bias):
            part.copy_(part[..., order].clone())
    new_ids = {index: new for new, index in enumerate(order)}
    texts = []
    for translating_model, vocabulary, name in (
        (model, standard, int),
        (moved, other, new_ids.get),
    ):
        split = split_of([[name(index) for index in ids] for ids in sources], [[1, 2]] * 12)
        found = translate_rows(
            translating_model, split, BATCHES, translator(EvaluateConfig(), vocabulary, 9)
        )
        decode = Tokeniser(Unit(), vocabulary).decode
        texts.append([[decode(written[row]) for row in range(12)] for written in found])
    assert texts[0] == texts[1]
    assert len({len(text.split()) for member in texts[0] for text in member}) > 2


def test_greedy_decoding_without_a_padding_token_returns_no_eos():
    vocabulary = Vocabulary(["<sos>", *"abcdefghi", "<eos>"])
    model = model_of()
    with torch.no_grad():
        model.lm_head.bias[..., 10] += 2.0
        model.lm_head.bias[..., 0] += 1.0
    split = split_of(drawn(lowest=1), [[1, 2]] * 12)
    found = translate_rows(model, split, BATCHES, translator(EvaluateConfig(), vocabulary, 9))
    translations = [tokens for member in found for tokens in member.values()]
    assert not any(10 in tokens for tokens in translations)
    assert any(0 in tokens for tokens in translations)
    assert any(0 < len(tokens) < 9 for tokens in translations)


def test_greedy_decoding_requires_sos_and_eos():
    for words in (["<pad>", "<sos>", "a"], ["<pad>", "a", "<eos>"]):
        with pytest.raises(HeadToHeadError, match=r"^greedy decoding requires <sos> and <eos>, "):
            translator(EvaluateConfig(), Vocabulary(words), 5)


BY_ROW = {"name": "sinusoidal-by-row"}
POSITIONS = {"encoder": BY_ROW, "decoder": BY_ROW, "cross": "none"}


def test_unpadded_batches_have_one_row_if_outputs_depend_on_the_row():
    model, sources, targets = model_of(positional=POSITIONS), drawn(), drawn(seed=8)
    split = split_of(sources, targets)
    unpadded = score(model, split, [], None, padded=False).forced
    together = teacher_forced(model, split, split.unpadded_batches(64, by_target=True))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if len(target) > 1:
            probabilities = unpadded_logits(model, source, target[:-1]).softmax(-1)
            loss = -sum(
                float(torch.log(probabilities[0, position, word]))
                for position, word in enumerate(target[1:])
            )
            assert float(unpadded.losses[0, row]) == pytest.approx(loss, abs=1e-5)
    assert (unpadded.losses - together.losses).abs().max() > 1e-3


SOURCES = [[5, 6, EOS], [7, EOS], [5, 7, 8, EOS], [9, EOS]]
TARGETS = [[SOS, 4, EOS], [SOS, 4, 5, 6, EOS], [SOS, 7, EOS], [SOS, 8, 9, EOS]]


@pytest.mark.parametrize("by_target", [False, True])
def test_unpadded_batches_hold_every_row_once_and_no_padding(by_target):
    tensors = split_of(SOURCES, TARGETS)
    batches = tensors.unpadded_batches(2, by_target)
    assert sorted(row for rows in batches for row in rows.tolist()) == [0, 1, 2, 3]
    for rows in batches:
        assert len({len(SOURCES[row]) for row in rows.tolist()}) == 1
        if by_target:
            assert len({len(TARGETS[row]) for row in rows.tolist()}) == 1
    assert len(batches) == (4 if by_target else 3)
    assert tensors.num_target_tokens(torch.tensor([[0, 2], [1, 3]])) == 4 + 3


def test_sentences_are_padded_to_the_given_length_with_the_given_id():
    tensors = split_of(SOURCES, TARGETS, pads=(8, 9), width=7)
    batch = tensors.batch(torch.tensor([[1]]), 7, 6)
    assert batch.source.tolist() == [[[7, EOS, 8, 8, 8, 8, 8]]]
    assert batch.decoder_input_ids.tolist() == [[[SOS, 4, 5, 6, EOS, 9]]]
    assert batch.labels.tolist() == [[[4, 5, 6, EOS, IGNORE_INDEX, IGNORE_INDEX]]]
