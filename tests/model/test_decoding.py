"""Greedy decoding and beam search against loops over single sentences without caches; the batch shrinks."""

import itertools
from functools import lru_cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headtohead import HeadToHeadError
from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.model import decoding
from headtohead.model.cuda import WORDS_PER_CHECK, cuda_layout
from headtohead.model.decoding import (
    BeamSearch,
    Ends,
    active_indices,
    is_causal,
    length_penalty,
    translate,
    translate_each,
)
from headtohead.schema.run_config import BeamConfig
from headtohead.testing.invariants.decoding import naive_greedy
from headtohead.testing.subject import SentenceBatch, Subject, forward
from headtohead.testing.tiny import tiny_config
from made import case_table

WORDS = 6
BY_ROW = {"name": "sinusoidal-by-row"}
TO_DECODER = {"quirks": {"cross_attention_memory": "decoder"}}
BEAM = BeamConfig(size=3)


def subject_of(sharp=12.0, ending=4.0, seeds=(1, 2), **choices):
    """Return a subject that ends its translations at different steps."""
    subject = Subject(tiny_config(**choices), seeds)
    with torch.no_grad():
        subject.model.lm_head.weight *= sharp
        subject.model.lm_head.bias[..., EOS] += ending
    return subject


def decoded(subject, beam=None, max_length=WORDS):
    read = subject.sentences
    return translate(subject.model, read.source, read.source_lengths, max_length, beam)


def search(subject, size, alpha, max_length=WORDS):
    read, beam = subject.sentences, BeamConfig(size=size, length_penalty=alpha)
    return BeamSearch(subject.model, read.source, read.source_lengths, max_length, beam).run()


@case_table(
    ("choices", "cached"),
    [
        ({"positional": "rotary"}, True),
        ({"positional": "alibi", "masking": "none"}, False),
        ({"positional": BY_ROW}, True),
        (
            {
                "masking": {"encoder": "padding", "decoder": "causal", "cross": "causal"},
                **TO_DECODER,
            },
            True,
        ),
        (
            {"masking": {"encoder": "none", "decoder": "causal", "cross": "none"}, **TO_DECODER},
            False,
        ),
        (
            {"masking": {"encoder": "none", "decoder": "none", "cross": "causal"}, **TO_DECODER},
            False,
        ),
        *(
            ({"positional": name, "masking": masking}, "causal" in masking)
            for name in ("none", "sinusoidal", "learned", "rotary", "alibi")
            for masking in ("padding-causal", "causal", "none", "padding")
        ),
    ],
    ids=str,
    default=6,
)
def test_greedy_decoding_equals_a_loop_without_a_cache(choices, cached):
    subject = subject_of(2.0, 1.5, (4, 5), attention="grouped-query", **choices)
    found = decoded(subject, max_length=8)
    assert is_causal(subject.model) == cached
    assert torch.equal(found, naive_greedy(subject, 8)[:, :, : found.shape[-1]])
    ended = (found == PAD).long()
    assert (ended.diff(dim=-1) >= 0).all()
    assert not (found == EOS).any()


@pytest.mark.parametrize("beam", [None, BEAM])
def test_a_style_with_a_fixed_number_of_tokens_cannot_decode_token_by_token(beam):
    with pytest.raises(
        HeadToHeadError, match=r"^attention 'embedding-softmax' supports exactly 16 .*\.decode: "
    ):
        decoded(Subject(tiny_config(attention="embedding-softmax")), beam)


def test_a_sentence_longer_than_the_learned_table_is_refused_in_one_line():
    with pytest.raises(
        HeadToHeadError, match=r"^position 6 is .* 5 .*set positional\.encoder\.max_length .* 6$"
    ):
        Subject(tiny_config({"name": "learned", "max_length": 5})).logits()


# -- finished sentences leave the batch ------------------------------------------------------------


@pytest.fixture
def rows(monkeypatch):
    """Return a function that decodes and returns the number of rows of each decoder step."""

    def decode(subject, beam=None):
        found, right = [], subject.model.step
        step = lambda token, *rest: found.append(token.shape[1]) or right(token, *rest)  # noqa: E731
        monkeypatch.setattr(subject.model, "step", step)
        assert not (decoded(subject, beam) == EOS).any()
        return found

    return decode


def test_finished_sentences_are_not_computed(rows):
    subject = subject_of(4.0)
    lengths = (naive_greedy(subject, WORDS) != PAD).sum(-1)
    # A sentence of n tokens takes n + 1 steps, the last for its <eos>.
    live = [int((lengths >= step).sum(1).max()) for step in range(WORDS)]
    found = rows(subject)
    assert found == [count for count in live if count]
    assert found[0] == 3 > found[-1]
    found = rows(subject_of(), BEAM)
    assert found[0] == 3
    assert found[1:] == sorted(found[1:], reverse=True)
    assert found[-1] < found[1] <= 9


@pytest.mark.parametrize("beam", [None, BEAM])
def test_decoding_stops_when_no_hypothesis_can_become_better(beam, rows):
    assert rows(subject_of(4.0, 100.0), beam) == [3]


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
        name = func.overloadpacket.__name__
        boolean = name.startswith("index") and any(
            mask is not None and mask.dtype == torch.bool
            for mask in args[1]
            if isinstance(args[1], list | tuple)
        )
        self.count += boolean or name in (
            "_local_scalar_dense",
            "nonzero",
            "masked_select",
            "is_nonzero",
            "equal",
        )
        return func(*args, **(kwargs or {}))


@case_table("ending", [-100.0, 0.5, 100.0], default=1)
@case_table("masking", ["padding-causal", "none"], default=1)
@pytest.mark.parametrize("beam", [None, BEAM])
def test_on_cuda_the_host_waits_once_per_eight_words(beam, masking, ending):
    subject, most = (
        subject_of(4.0, ending, masking=masking, positional="rotary"),
        WORDS_PER_CHECK + 3,
    )
    with HostReads() as on_cpu:
        expected = decoded(subject, beam, most)
    with cuda_layout(), HostReads() as on_cuda:
        found = decoded(subject, beam, most)
    assert torch.equal(found, expected)
    # is_causal reads a mask of the CPU.
    assert on_cuda.count <= 1 + most // WORDS_PER_CHECK
    assert ending == 100.0 or on_cpu.count > 1 + most // WORDS_PER_CHECK


# -- beam search -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def next_log_probabilities(subject, prefix):
    """Return log-probabilities of the token after a prefix, computed without caches."""
    read = subject.sentences
    target = torch.tensor(prefix).expand(*read.source_lengths.shape, -1)
    lengths = torch.full_like(read.source_lengths, len(prefix))
    with torch.no_grad():
        logits = forward(
            subject.model, SentenceBatch(read.source, read.source_lengths, target, lengths)
        )
    return torch.log_softmax(logits[..., -1, :], dim=-1).tolist()


def plain_beam(subject, member, row, size, alpha):
    """Return tokens and score of the best translation of a sentence, searched up to the maximum length."""
    active, finished = [([SOS], 0.0)], []
    for tokens in range(1, WORDS + 1):
        ranked = sorted(
            (
                (prefix, word, likely + more)
                for prefix, likely in active
                for word, more in enumerate(
                    next_log_probabilities(subject, tuple(prefix))[member][row]
                )
            ),
            key=lambda candidate: -candidate[2],
        )
        penalty = ((5 + tokens) / 6) ** alpha
        finished += [(p[1:], likely / penalty) for p, w, likely in ranked[:size] if w == EOS]
        active = [([*p, w], likely) for p, w, likely in ranked if w != EOS][:size]
    finished += [(prefix[1:], likely / penalty) for prefix, likely in active]
    return max(finished, key=lambda candidate: candidate[1])


def assert_translation(found, member, row, tokens, score):
    """Compare a translation of a search with tokens and score; <pad> follows its end."""
    ids, scores = (part[member, row] for part in found)
    assert ids.tolist() == [*tokens, *[PAD] * (len(ids) - len(tokens))]
    assert float(scores) == pytest.approx(score, abs=1e-10)


@case_table(
    ("choices", "size", "alpha"),
    [
        ({}, 2, 0.6),
        ({"positional": "rotary", "attention": "grouped-query"}, 3, 0.6),
        ({"positional": "alibi", "attention": "talking-heads"}, 3, 0.6),
        *(({}, *width) for width in itertools.product([1, 2, 5, 12], [0.0, 0.6, 2.0])),
        ({"positional": "t5-relative", "attention": "differential"}, 3, 0.6),
        ({"positional": "shaw-relative", "attention": "multi-query", "masking": "window"}, 3, 0.6),
        ({"positional": "fire", "attention": "sigmoid"}, 3, 0.6),
        ({"positional": "learned", "attention": "linear"}, 3, 0.6),
        ({"masking": "none"}, 3, 0.6),
        ({"masking": "causal", "attention": "independent-heads", "norm": "post"}, 3, 0.6),
        ({"positional": BY_ROW}, 3, 0.6),
        ({"positional": BY_ROW, "masking": "padding"}, 3, 0.6),
        (
            {
                "masking": {"encoder": "padding", "decoder": "causal", "cross": "causal"},
                **TO_DECODER,
            },
            3,
            0.6,
        ),
    ],
    ids=str,
    default=3,
)
def test_search_equals_a_search_without_cache_and_batch(choices, size, alpha):
    subject = subject_of(**choices)
    found = search(subject, size, alpha)
    for member, row in itertools.product(range(2), range(3)):
        assert_translation(found, member, row, *plain_beam(subject, member, row, size, alpha))
    assert choices or len({tuple(ids) for ids in found[0].flatten(0, 1).tolist()}) > 2


@pytest.mark.parametrize(
    ("masking", "ties"), [("padding-causal", False), ("none", False), ("padding-causal", True)]
)
def test_a_beam_of_one_without_length_penalty_is_greedy_decoding(masking, ties):
    subject = subject_of(masking=masking)
    if ties:
        with torch.no_grad():  # the logits of two tokens each are equal
            for part in (subject.model.lm_head.weight, subject.model.lm_head.bias):
                odd = part[..., 1::2]
                odd.copy_(part[..., ::2][..., : odd.shape[-1]])
    assert torch.equal(search(subject, 1, 0.0)[0], decoded(subject))


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
            for prefix, likely in active.items():
                more = next_log_probabilities(subject, (SOS, *prefix))[member][row]
                scores[prefix] = (likely + more[EOS]) / length_penalty(tokens, alpha)
                following |= {(*prefix, word): likely + more[word] for word in plain}
            active = following
        scores |= {
            prefix: likely / length_penalty(max_length, alpha) for prefix, likely in active.items()
        }
        assert len(scores) == 1 + 8 + 64 + 512
        best = max(scores, key=scores.get)
        assert_translation(found, member, row, best, scores[best])


# -- sentences grouped by length -------------------------------------------------------------------


@case_table(
    ("choices", "beam"),
    [
        ({}, BEAM),
        *(
            ({**attention, **more}, beam)
            for attention in ({}, {"attention": "sigmoid"})
            for more in ({}, {"masking": "none"}, {"masking": "causal"}, {"positional": BY_ROW})
            for beam in (None, BEAM)
        ),
    ],
    ids=str,
    default=1,
)
def test_grouped_sentences_are_translated_as_in_batches_of_one(choices, beam, monkeypatch):
    model = subject_of(4.0, 2.0, (1,), **choices).model
    with torch.no_grad():
        for layer in model.decoder:
            layer.cross.output.weight *= 8.0
    generator = torch.Generator().manual_seed(2)
    lengths = (3, 6, 3, 2, 6, 5, 3, 4, 5, 2, 6, 4)
    sources = [torch.randint(4, 12, (length,), generator=generator).tolist() for length in lengths]
    single = [translate_each(model, [source], 10, beam, Ends())[0] for source in sources]
    assert translate_each(model, sources, 10, beam, Ends()) == single
    monkeypatch.setattr(decoding, "TOGETHER", 2)
    assert translate_each(model, sources, 10, beam, Ends()) == single
    assert len({tuple(tokens) for tokens in single}) > 2
