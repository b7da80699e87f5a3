"""Decoding word by word gives what reading the whole sentence at once gives."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.model.decoding import greedy, is_causal
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import moved_logit
from headtohead.testing.subject import Sentences, Subject, forward
from headtohead.testing.verdict import Verdict, does_not_apply, outside, within

WORDS = 6


@invariant("cached-decoding")
def cached_decoding_equals_teacher_forcing(subject: Subject) -> Verdict:
    """Cached step-by-step decoding gives the logits of teacher forcing."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder reads exactly {subject.only_length} tokens at once")
    apart = _stepped(subject) - subject.plain
    number = moved_logit(apart, subject.sentences.live_target, "decoding by steps and not at once")
    if not subject.is_causal:
        return outside("the decoder's mask does not hide the future", number, "teacher forcing differs from decoding")
    return within(number, "difference of cached decoding and teacher forcing")


@invariant("greedy-decoding")
def greedy_decoding_equals_a_plain_loop(subject: Subject) -> Verdict:
    """Greedy decoding writes, token for token, what a loop without any cache writes."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder reads exactly {subject.only_length} tokens at once")
    if is_causal(subject.model) != subject.is_causal:
        told = "expected a cache exactly where the future is hidden"
        return Verdict("broken", None, told, shown=told)
    sentences = subject.sentences
    found = greedy(subject.model, sentences.source, sentences.source_lengths, WORDS)
    wrong = (_written(found) != plain_greedy(subject, WORDS)).sum()
    return within(float(wrong), "words that differ from a loop without a cache", 0.0)


@torch.no_grad()
def _stepped(subject: Subject) -> Tensor:
    model, sentences = subject.model, subject.sentences
    memory = model.encode(sentences.source, sentences.source_lengths)
    time = sentences.target.shape[-1]
    caches = model.caches(memory, time)
    hidden = [
        model.step(sentences.target[:, :, place : place + 1], place, memory, sentences.source_lengths, caches)
        for place in range(time)
    ]
    return model.project(torch.cat(hidden, dim=2))


@torch.no_grad()
def plain_greedy(subject: Subject, words: int) -> Tensor:
    """Decode by computing everything anew for every word, ``[member, batch, words]``."""
    sentences = subject.sentences
    members, batch = sentences.source_lengths.shape
    written = [[[SOS] for _ in range(batch)] for _ in range(members)]
    ended = [[False] * batch for _ in range(members)]
    for place in range(words):
        target = torch.tensor(written)
        lengths = torch.full((members, batch), place + 1)
        logits = forward(subject.model, Sentences(sentences.source, sentences.source_lengths, target, lengths))
        for member in range(members):
            for row in range(batch):
                word = int(logits[member, row, -1].argmax())
                ended[member][row] |= word == EOS
                written[member][row].append(PAD if ended[member][row] else word)
    return torch.tensor(written)[:, :, 1:]


def _written(ids: Tensor) -> Tensor:
    """Fill up to the asked number of words: decoding may end early."""
    return torch.nn.functional.pad(ids, (0, WORDS - ids.shape[-1]), value=PAD)
