"""Decoding removes finished sentences and their caches from the batch."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headtohead.data.vocabulary import EOS, PAD
from headtohead.model.attention_context import LEAST_ROOM
from headtohead.model.beam import translate
from headtohead.model.cuda import WORDS_PER_CHECK, cuda_layout
from headtohead.model.decoding import active_indices, greedy
from headtohead.schema.run_config import BeamConfig
from headtohead.testing.invariants.decoding import naive_greedy
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table

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
    assert active_indices(done, 1).tolist() == [[1, 3], [3, 0]]
    assert active_indices(torch.zeros(2, 4, dtype=torch.bool), 1) is None
    assert active_indices(torch.ones(2, 4, dtype=torch.bool), 1).shape == (2, 0)


class HostReads(TorchDispatchMode):
    """Counts operations after which the host waits for a GPU."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        boolean = func.overloadpacket.__name__.startswith("index") and any(
            mask is not None and mask.dtype == torch.bool for mask in args[1] if isinstance(args[1], list | tuple)
        )
        self.count += boolean or func.overloadpacket.__name__ in COPIES_TO_HOST
        return func(*args, **(kwargs or {}))


COPIES_TO_HOST = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")


@case_table("ending", [-100.0, 0.5, 100.0], default=1)
@case_table("masking", ["padding-causal", "none"], default=1)
@pytest.mark.parametrize("beam", [None, 3])
def test_on_cuda_the_host_waits_once_per_eight_words(beam, masking, ending):
    subject = subject_of(ending, masking=masking, positional="rotary")
    read, most = subject.sentences, 2 * WORDS_PER_CHECK + 3
    search = None if beam is None else BeamConfig(size=beam, length_penalty=0.6)

    def decode():
        return translate(subject.model, read.source, read.source_lengths, most, search)

    with HostReads() as on_cpu:
        expected = decode()
    with cuda_layout(), HostReads() as on_cuda:
        found = decode()
    assert torch.equal(found, expected)
    # is_causal reads a mask of the CPU.
    assert on_cuda.count <= 1 + most // WORDS_PER_CHECK
    assert ending == 100.0 or on_cpu.count > 1 + most // WORDS_PER_CHECK


@case_table("masking", ["padding-causal", "none"], default=1)
def test_caches_grow_beyond_their_initial_capacity(masking):
    subject = subject_of(-100.0, masking=masking)
    read = subject.sentences
    found = greedy(subject.model, read.source, read.source_lengths, LONG)
    assert torch.equal(found, naive_greedy(subject, LONG))
