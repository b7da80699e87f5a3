"""Greedy decoding: sentences of different lengths, masks without exact caches, finite tables."""

import pytest
import torch

from headtohead import HeadToHeadError
from headtohead.data.vocabulary import EOS, PAD
from headtohead.model.beam import translate
from headtohead.model.decoding import greedy, is_causal
from headtohead.schema.run_config import BeamConfig
from headtohead.testing.invariants.decoding import naive_greedy
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table


def ending_at_different_steps(**choices):
    """Return a subject with translations of different lengths; the bias makes <eos> likely."""
    subject = Subject(tiny_config(**choices), seeds=(4, 5, 6))
    subject.sentences = _for_members(subject, 3)
    with torch.no_grad():
        subject.model.lm_head.weight *= 2.0
        subject.model.lm_head.bias[..., EOS] += 1.5
    return subject


def _for_members(subject, members):
    from dataclasses import fields, replace

    sentences = subject.sentences
    wider = {field.name: getattr(sentences, field.name)[[0, 1, 0][:members]] for field in fields(sentences)}
    return replace(sentences, **wider)


@pytest.mark.parametrize("positional", ["none", "sinusoidal", "learned", "rotary", "alibi"])
@case_table("masking", ["padding-causal", "causal", "none", "padding"], default=1)
def test_greedy_decoding_equals_a_loop_without_a_cache(positional, masking):
    subject = ending_at_different_steps(positional=positional, attention="grouped-query", masking=masking)
    sentences = subject.sentences
    found = greedy(subject.model, sentences.source, sentences.source_lengths, 8)
    assert is_causal(subject.model) == (masking in ("padding-causal", "causal"))
    assert torch.equal(found, naive_greedy(subject, 8)[:, :, : found.shape[-1]])


CROSS_ATTENTION_TO_DECODER = {
    "both causal": ({"encoder": "padding", "decoder": "causal", "cross": "causal"}, True),
    "second sees the future": ({"encoder": "none", "decoder": "causal", "cross": "none"}, False),
    "first sees the future": ({"encoder": "none", "decoder": "none", "cross": "causal"}, False),
}


@case_table("positional", ["sinusoidal", "rotary", "learned"], default=3)
@case_table(("masking", "cached"), CROSS_ATTENTION_TO_DECODER.values(), ids=list(CROSS_ATTENTION_TO_DECODER), default=3)
def test_cross_attention_to_the_decoder_equals_a_loop_without_a_cache(masking, cached, positional):
    subject = ending_at_different_steps(
        positional=positional, masking=masking, quirks={"cross_attention_memory": "decoder"}
    )
    sentences = subject.sentences
    found = greedy(subject.model, sentences.source, sentences.source_lengths, 8)
    assert is_causal(subject.model) == cached
    assert torch.equal(found, naive_greedy(subject, 8)[:, :, : found.shape[-1]])


def test_rows_keep_their_positions_when_decoding_with_a_cache():
    subject = ending_at_different_steps(positional={"name": "sinusoidal", "index": "row"})
    sentences = subject.sentences
    found = greedy(subject.model, sentences.source, sentences.source_lengths, 8)
    assert is_causal(subject.model)
    assert subject.model.position_is_row
    assert torch.equal(found, naive_greedy(subject, 8)[:, :, : found.shape[-1]])
    flipped = greedy(subject.model, sentences.source.flip(1), sentences.source_lengths.flip(1), 8)
    assert not torch.equal(flipped.flip(1), found)


@pytest.mark.parametrize(("beam", "name"), [(None, "greedy"), (BeamConfig(size=3), "beam")])
def test_a_style_with_a_fixed_number_of_tokens_cannot_decode_token_by_token(beam, name):
    subject = Subject(tiny_config(attention="embedding-softmax"))
    sentences = subject.sentences
    with pytest.raises(HeadToHeadError, match=rf"^attention 'embedding-softmax' supports exactly 16 .* which {name} "):
        translate(subject.model, sentences.source, sentences.source_lengths, 8, beam)


def test_sentences_of_a_batch_end_at_different_steps_and_stay_ended():
    subject = ending_at_different_steps()
    sentences = subject.sentences
    found = greedy(subject.model, sentences.source, sentences.source_lengths, 8)
    lengths = (found != PAD).sum(-1)
    assert len(lengths.unique()) > 2
    ended = (found == PAD).long()
    assert (ended.diff(dim=-1) >= 0).all()
    assert not (found == EOS).any()


def test_members_of_a_stack_decode_as_in_a_stack_of_one():
    subject = ending_at_different_steps()
    sentences = subject.sentences
    together = greedy(subject.model, sentences.source, sentences.source_lengths, 8)
    for member in range(3):
        single = Subject(tiny_config(), seeds=(4,))
        own = {name: value[member : member + 1] for name, value in subject.model.state_dict().items()}
        single.model.load_state_dict(own)
        source = sentences.source[member : member + 1]
        lengths = sentences.source_lengths[member : member + 1]
        found = greedy(single.model, source, lengths, 8)[0]
        width = min(found.shape[-1], together.shape[-1])
        assert torch.equal(found[:, :width], together[member, :, :width])
        assert not together[member, :, width:].any()


def test_a_sentence_longer_than_the_learned_table_is_refused_in_one_line():
    subject = Subject(tiny_config({"name": "learned", "max_length": 5}))
    with pytest.raises(
        HeadToHeadError,
        match=r"^position 6 is beyond the 5 positions of learned; "
        r"set positional\.encoder\.max_length to at least 6$",
    ):
        subject.logits()
