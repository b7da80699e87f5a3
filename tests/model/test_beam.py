"""Beam search against a naive search of single sentences without caches."""

import itertools
import math
from functools import lru_cache

import pytest
import torch

from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.model.beam import beam_search, length_penalty
from headtohead.model.decoding import greedy
from headtohead.schema.run_config import BeamConfig
from headtohead.testing.subject import SentenceBatch, Subject, forward
from headtohead.testing.tiny import tiny_config
from made import case_table

WORDS = 6


def subject_of(sharp=12.0, ending=4.0, **choices):
    """Return a subject whose translations end at different steps."""
    subject = Subject(tiny_config(**choices))
    with torch.no_grad():
        subject.model.lm_head.weight *= sharp
        subject.model.lm_head.bias[..., EOS] += ending
    return subject


def beam_of(size, alpha):
    return BeamConfig(size=size, length_penalty=alpha)


@lru_cache(maxsize=1024)
def next_log_probabilities(subject, prefix):
    """Return log-probabilities of the token after a prefix, computed without caches."""
    read = subject.sentences
    target = torch.tensor(prefix).expand(*read.source_lengths.shape, -1)
    lengths = torch.full_like(read.source_lengths, len(prefix))
    with torch.no_grad():
        logits = forward(subject.model, SentenceBatch(read.source, read.source_lengths, target, lengths))
    return torch.log_softmax(logits[..., -1, :], dim=-1).tolist()


def plain_beam(subject, member, row, size, alpha, max_length=WORDS):
    """Return tokens and score of the best translation of a sentence, searched up to the maximum length."""
    active, finished = [([SOS], 0.0)], []
    for tokens in range(1, max_length + 1):
        ranked = sorted(
            (
                (prefix, word, likely + more)
                for prefix, likely in active
                for word, more in enumerate(next_log_probabilities(subject, tuple(prefix))[member][row])
            ),
            key=lambda candidate: -candidate[2],
        )
        penalty = ((5 + tokens) / 6) ** alpha
        finished += [(p[1:], likely / penalty) for p, w, likely in ranked[:size] if w == EOS]
        active = [([*p, w], likely) for p, w, likely in ranked if w != EOS][:size]
    finished += [(prefix[1:], likely / penalty) for prefix, likely in active]
    return max(finished, key=lambda candidate: candidate[1])


def search(subject, size, alpha, max_length=WORDS):
    read = subject.sentences
    return beam_search(subject.model, read.source, read.source_lengths, max_length, beam_of(size, alpha))


def translation(found, member, row):
    return found.ids[member, row, : int(found.lengths[member, row])].tolist()


def assert_equals_the_plain_search(subject, size, alpha):
    found = search(subject, size, alpha)
    members, batch = subject.sentences.source_lengths.shape
    texts = set()
    for member, row in itertools.product(range(members), range(batch)):
        tokens, score = plain_beam(subject, member, row, size, alpha)
        assert translation(found, member, row) == tokens
        assert not found.ids[member, row, len(tokens) :].any()
        assert float(found.scores[member, row]) == pytest.approx(score, abs=1e-10)
        texts.add(tuple(tokens))
    return texts


@case_table(
    "choices",
    [
        {},
        {"positional": "rotary", "attention": "grouped-query"},
        {"positional": "alibi", "attention": "talking-heads"},
        {"positional": "t5-relative", "attention": "differential"},
        {"positional": "shaw-relative", "attention": "multi-query", "masking": "window"},
        {"positional": "fire", "attention": "sigmoid"},
        {"positional": "learned", "attention": "linear"},
        {"attention": "uniform", "tie_embeddings": "output"},
        {"masking": "none"},
        {"masking": "causal", "attention": "independent-heads", "norm": "post"},
        {"positional": {"name": "sinusoidal", "index": "row"}},
        {"positional": {"name": "sinusoidal", "index": "row"}, "masking": "padding"},
        {
            "masking": {"encoder": "padding", "decoder": "causal", "cross": "causal"},
            "quirks": {"cross_attention_memory": "decoder"},
        },
    ],
    ids=str,
    default=3,
)
def test_search_equals_a_search_without_cache_and_batch(choices):
    subject = Subject(tiny_config(**choices)) if choices.get("tie_embeddings") else subject_of(**choices)
    assert_equals_the_plain_search(subject, 3, 0.6)


WIDTHS = [(1, 0.0), (2, 0.6), (5, 2.0), (5, 0.0)]


@case_table(("size", "alpha"), dict.fromkeys([*WIDTHS, *itertools.product([1, 2, 5, 12], [0.0, 0.6, 2.0])]), default=3)
def test_every_beam_size_and_length_penalty_follows_its_definition(size, alpha):
    texts = assert_equals_the_plain_search(subject_of(), size, alpha)
    assert len(texts) > 2


@pytest.mark.parametrize("masking", ["padding-causal", "none"])
def test_a_beam_of_one_without_length_penalty_is_greedy_decoding(masking):
    subject = subject_of(masking=masking)
    read = subject.sentences
    expected = greedy(subject.model, read.source, read.source_lengths, WORDS)
    assert torch.equal(search(subject, 1, 0.0).ids, expected)


def test_a_beam_of_one_is_greedy_decoding_where_tokens_are_equally_likely():
    subject = subject_of()
    read = subject.sentences
    with torch.no_grad():  # the logits of two tokens each are equal
        for part in (subject.model.lm_head.weight, subject.model.lm_head.bias):
            odd = part[..., 1::2]
            odd.copy_(part[..., ::2][..., : odd.shape[-1]])
    expected = greedy(subject.model, read.source, read.source_lengths, WORDS)
    assert torch.equal(search(subject, 1, 0.0).ids, expected)


@case_table("alpha", [0.0, 0.6], default=1)
def test_a_beam_that_holds_all_outputs_finds_the_best(alpha):
    subject, max_length = subject_of(), 3
    found = search(subject, 9**max_length, alpha, max_length)
    plain = [word for word in range(9) if word != EOS]
    for member, row in ((0, 0), (1, 2)):
        scores = {}
        active = {(): 0.0}
        for tokens in range(1, max_length + 1):
            following = {}
            for prefix, prefix_log_probability in active.items():
                more = next_log_probabilities(subject, (SOS, *prefix))[member][row]
                scores[prefix] = (prefix_log_probability + more[EOS]) / length_penalty(tokens, alpha)
                following |= {(*prefix, word): prefix_log_probability + more[word] for word in plain}
            active = following
        scores |= {
            prefix: log_probability / length_penalty(max_length, alpha) for prefix, log_probability in active.items()
        }
        assert len(scores) == 1 + 8 + 64 + 512
        best = max(scores, key=scores.get)
        assert translation(found, member, row) == list(best)
        assert float(found.scores[member, row]) == pytest.approx(scores[best], abs=1e-10)


def test_length_penalty_equals_that_of_wu_et_al():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 0.6) == pytest.approx(2.0**0.6)
    assert length_penalty(100, 0.0) == 1.0
    assert length_penalty(13, 2.0) == pytest.approx(9.0)


def test_search_stops_when_no_hypothesis_can_become_better(monkeypatch):
    """If <eos> is almost certain, the search takes a single step."""
    subject = subject_of(ending=60.0)
    model, steps = subject.model, []
    right = model.step
    monkeypatch.setattr(
        model, "step", lambda token, position, *rest: steps.append(position) or right(token, position, *rest)
    )
    found = search(subject, 3, 0.6)
    assert steps == [0]
    assert not found.lengths.any()
    assert (found.ids == PAD).all()


def test_finished_sentences_are_not_computed_further(monkeypatch):
    subject = subject_of()
    model, rows = subject.model, []
    right = model.step
    monkeypatch.setattr(
        model, "step", lambda token, position, *rest: rows.append(token.shape[1]) or right(token, position, *rest)
    )
    search(subject, 3, 0.6)
    assert rows[0] == 3
    assert rows[1:] == sorted(rows[1:], reverse=True)
    assert rows[-1] < rows[1] <= 9


def test_scores_are_log_probabilities():
    subject = subject_of()
    found = search(subject, 4, 0.0)
    for member, row in itertools.product(range(2), range(3)):
        tokens = translation(found, member, row)
        ends = tokens if len(tokens) == WORDS else [*tokens, EOS]
        likely = math.fsum(
            next_log_probabilities(subject, (SOS, *ends[:position]))[member][row][word]
            for position, word in enumerate(ends)
        )
        assert float(found.scores[member, row]) == pytest.approx(likely, abs=1e-10)
