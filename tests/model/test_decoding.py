"""Greedy decoding against loops over single sentences without caches; the batch shrinks."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headtohead import HeadToHeadError
from headtohead.data.vocabulary import EOS, PAD
from headtohead.model import decoding
from headtohead.model.cuda import WORDS_PER_CHECK, cuda_layout
from headtohead.model.decoding import (
    Ends,
    active_indices,
    greedy,
    is_causal,
    translate_each,
)
from headtohead.testing.invariants.decoding import naive_greedy
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table

WORDS = 6
BY_ROW = {"name": "sinusoidal-by-row"}
TO_DECODER = {"quirks": {"notebooks": {"cross_attention_memory": "decoder"}}}


def subject_of(sharp=12.0, ending=4.0, seeds=(1, 2), **choices):
    """Return a subject that ends its translations at different steps."""
    subject = Subject(tiny_config(**choices), seeds)
    with torch.no_grad():
        subject.model.lm_head.weight *= sharp
        subject.model.lm_head.bias[..., EOS] += ending
    return subject


def decoded(subject, max_length=WORDS):
    read = subject.sentences
    return greedy(subject.model, read.source, read.source_lengths, max_length)


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


def test_a_style_with_a_fixed_number_of_tokens_cannot_decode_token_by_token():
    with pytest.raises(
        HeadToHeadError, match=r"^attention 'embedding-softmax' supports exactly 16 .*\.decode: "
    ):
        decoded(Subject(tiny_config(attention="embedding-softmax")))


def test_a_sentence_longer_than_the_learned_table_is_refused_in_one_line():
    with pytest.raises(
        HeadToHeadError, match=r"^position 6 is .* 5 .*set positional\.encoder\.max_length .* 6$"
    ):
        Subject(tiny_config({"name": "learned", "max_length": 5})).logits()


@pytest.mark.parametrize("tokens", [8, 12])
def test_a_source_that_leaves_no_position_for_a_token_is_refused(tokens):
    learned = {"name": "learned", "max_length": 8}
    config = tiny_config(learned, architecture="decoder-only")
    model = Subject(config, (1,)).model
    source = torch.full((1, 2, tokens), 4)
    lengths = torch.full((1, 2), tokens)
    last = tokens + 1
    message = rf"^position {last} is beyond the 8 .*set positional\.decoder\.max_length .* {last}$"
    with pytest.raises(HeadToHeadError, match=message):
        greedy(model, source, lengths, WORDS)
    with pytest.raises(HeadToHeadError, match=message):
        translate_each(model, [source[0, 0].tolist()], WORDS, Ends())
    assert greedy(model, source[:, :, :7], lengths.clamp(max=7), WORDS).shape == (1, 2, 1)


def test_a_batch_with_more_rows_than_an_encoding_by_rows_is_refused():
    config = tiny_config(BY_ROW | {"max_len": 4}, architecture="decoder-only")
    model = Subject(config, (1,)).model
    source = torch.full((1, 5, 3), 4)
    with pytest.raises(HeadToHeadError, match=r"^row 5 is beyond the 4 rows of sinusoidal-by-row"):
        greedy(model, source, torch.full((1, 5), 3), WORDS)


# -- finished sentences leave the batch ------------------------------------------------------------


@pytest.fixture
def rows(monkeypatch):
    """Return a function that decodes and returns the number of rows of each decoder step."""

    def decode(subject):
        found, right = [], subject.model.step
        step = lambda token, *rest: found.append(token.shape[1]) or right(token, *rest)  # noqa: E731
        monkeypatch.setattr(subject.model, "step", step)
        assert not (decoded(subject) == EOS).any()
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


def test_decoding_stops_when_all_sentences_are_finished(rows):
    assert rows(subject_of(4.0, 100.0)) == [3]


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
def test_on_cuda_the_host_waits_once_per_eight_words(masking, ending):
    subject, most = (
        subject_of(4.0, ending, masking=masking, positional="rotary"),
        WORDS_PER_CHECK + 3,
    )
    with HostReads() as on_cpu:
        expected = decoded(subject, most)
    with cuda_layout(), HostReads() as on_cuda:
        found = decoded(subject, most)
    assert torch.equal(found, expected)
    # is_causal reads a mask of the CPU.
    assert on_cuda.count <= 1 + most // WORDS_PER_CHECK
    assert ending == 100.0 or on_cpu.count > 1 + most // WORDS_PER_CHECK


# -- sentences grouped by length -------------------------------------------------------------------


@case_table(
    "choices",
    [
        {**attention, **more}
        for attention in ({}, {"attention": "sigmoid"})
        for more in ({}, {"masking": "none"}, {"masking": "causal"}, {"positional": BY_ROW})
    ],
    ids=str,
    default=1,
)
def test_grouped_sentences_are_translated_as_in_batches_of_one(choices, monkeypatch):
    model = subject_of(4.0, 2.0, (1,), **choices).model
    with torch.no_grad():
        for layer in model.decoder:
            layer.cross.output.weight *= 8.0
    generator = torch.Generator().manual_seed(2)
    lengths = (3, 6, 3, 2, 6, 5, 3, 4, 5, 2, 6, 4)
    sources = [torch.randint(4, 12, (length,), generator=generator).tolist() for length in lengths]
    single = [translate_each(model, [source], 10, Ends())[0] for source in sources]
    assert translate_each(model, sources, 10, Ends()) == single
    monkeypatch.setattr(decoding, "TOGETHER", 2)
    assert translate_each(model, sources, 10, Ends()) == single
    assert len({tuple(tokens) for tokens in single}) > 2
