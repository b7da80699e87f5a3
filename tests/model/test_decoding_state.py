"""Decoding removes finished sentences and their caches from the batch."""

import pytest
import torch

from headtohead.data.vocabulary import EOS, PAD
from headtohead.model import decoding_state
from headtohead.model.attention_context import LEAST_ROOM
from headtohead.model.beam import beam_search
from headtohead.model.decoding import active_indices, greedy
from headtohead.schema.run_config import BeamConfig
from headtohead.testing.invariants.decoding import naive_greedy
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config

LONG = LEAST_ROOM * 2 + 5


def subject_of(ending, **choices):
    subject = Subject(tiny_config(**choices))
    with torch.no_grad():
        subject.model.lm_head.weight *= 4.0
        subject.model.lm_head.bias[..., EOS] += ending
        subject.model.lm_head.bias[..., PAD] -= 100.0
    return subject


def rows_of_steps(subject, monkeypatch, decode):
    """Return the number of rows of each decoder step."""
    model, rows = subject.model, []
    right = model.step

    def step(token, *rest):
        rows.append(token.shape[1])
        return right(token, *rest)

    monkeypatch.setattr(model, "step", step)
    decode()
    return rows


def test_greedy_decoding_does_not_compute_finished_sentences(monkeypatch):
    subject = subject_of(4.0)
    read = subject.sentences
    lengths = (naive_greedy(subject, 6) != PAD).sum(-1)
    rows = rows_of_steps(subject, monkeypatch, lambda: greedy(subject.model, read.source, read.source_lengths, 6))
    # A sentence of n tokens takes n + 1 steps, the last for its <eos>.
    live = [int((lengths >= step).sum(1).max()) for step in range(6)]
    assert rows == [count for count in live if count]
    assert rows[0] == 3 > rows[-1]


def test_decoding_stops_when_all_sentences_have_ended(monkeypatch):
    subject = subject_of(100.0)
    read = subject.sentences
    rows = rows_of_steps(subject, monkeypatch, lambda: greedy(subject.model, read.source, read.source_lengths, 6))
    assert rows == [3]


def test_members_continue_with_the_same_number_of_sentences():
    done = torch.tensor([[True, False, True, False], [True, True, True, False]])
    assert active_indices(done).tolist() == [[1, 3], [3, 0]]
    assert active_indices(torch.zeros(2, 4, dtype=torch.bool)) is None
    assert active_indices(torch.ones(2, 4, dtype=torch.bool)).shape == (2, 0)


@pytest.mark.parametrize("masking", ["padding-causal", "none"])
def test_caches_grow_beyond_their_initial_capacity(masking):
    subject = subject_of(-100.0, masking=masking)
    read = subject.sentences
    found = greedy(subject.model, read.source, read.source_lengths, LONG)
    assert torch.equal(found, naive_greedy(subject, LONG))


def test_caches_of_beam_search_grow_too(monkeypatch):
    subject, beam = subject_of(-100.0), BeamConfig(size=3)
    read = subject.sentences
    found = beam_search(subject.model, read.source, read.source_lengths, LONG, beam)
    monkeypatch.setattr(decoding_state, "is_causal", lambda model: False)
    again = beam_search(subject.model, read.source, read.source_lengths, LONG, beam)
    assert torch.equal(found.ids, again.ids)
    torch.testing.assert_close(found.scores, again.scores, rtol=0, atol=1e-9)
    assert (found.lengths == LONG).all()
