"""Decoding token by token gives the logits of one pass over the whole target."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.model.decoding import DecodingState, greedy, is_causal
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject, forward
from headtohead.testing.verdict import (
    LOGITS,
    Verdict,
    does_not_apply,
    logit_changes,
    outside,
    violated,
    within,
)

MAX_TOKENS = 6


@invariant("cached-decoding")
@torch.no_grad()
def cached_decoding_equals_teacher_forcing(subject: Subject) -> Verdict:
    """Cached step-by-step decoding gives the logits of teacher forcing."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder accepts exactly {subject.only_length} tokens at once")
    model = subject.model
    sentences = subject.decoded_sentences
    time = sentences.target.shape[-1]
    state = DecodingState(model, sentences.source, sentences.source_lengths, time)
    state.caches = model.caches()  # also under a mask for which decoding uses none
    steps = [state.logits(sentences.target[:, :, : position + 1]) for position in range(time)]
    difference = torch.stack(steps, dim=2) - subject.logits(sentences)
    change = logit_changes(difference, sentences.target_nonpad)
    if not subject.is_causal:
        if "encoder" not in subject.roles:  # the visible later tokens may all belong to the source
            return does_not_apply("the decoder's mask does not hide the future")
        return outside(
            "the decoder's mask does not hide the future",
            change,
            "teacher forcing differs from decoding",
        )
    return within(change, "difference between cached decoding and teacher forcing", LOGITS)


@invariant("greedy-decoding")
def greedy_decoding_equals_a_plain_loop(subject: Subject) -> Verdict:
    """Greedy decoding returns, token for token, the output of a loop without a cache."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder accepts exactly {subject.only_length} tokens at once")
    if is_causal(subject.model) != subject.is_causal:
        return violated(
            "decoding must use a cache if and only if the decoder's mask hides the future"
        )
    sentences = subject.decoded_sentences
    decoded = greedy(subject.model, sentences.source, sentences.source_lengths, MAX_TOKENS)
    # Decoding ends with the last sentence.
    padded = torch.nn.functional.pad(decoded, (0, MAX_TOKENS - decoded.shape[-1]), value=PAD)
    wrong = (padded != naive_greedy(subject, MAX_TOKENS)).sum()
    return within(wrong, "tokens that differ from a loop without a cache", bound=0.0)


@torch.no_grad()
def naive_greedy(subject: Subject, tokens: int) -> Tensor:
    """Decode greedily by a full pass per token and return the ids, ``[member, batch, tokens]``."""
    sentences = subject.decoded_sentences
    members, batch = sentences.source_lengths.shape
    decoded = [[[SOS] for _ in range(batch)] for _ in range(members)]
    ended = [[False] * batch for _ in range(members)]
    for position in range(tokens):
        target = torch.tensor(decoded)
        lengths = torch.full((members, batch), position + 1)
        prefixes = SentenceBatch(sentences.source, sentences.source_lengths, target, lengths)
        logits = forward(subject.model, prefixes)
        for member in range(members):
            for sentence in range(batch):
                token = int(logits[member, sentence, -1].argmax())
                if token == EOS:
                    ended[member][sentence] = True
                decoded[member][sentence].append(PAD if ended[member][sentence] else token)
    return torch.tensor(decoded)[:, :, 1:]
