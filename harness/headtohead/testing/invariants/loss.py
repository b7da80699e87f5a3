"""The loss is the framework's, member by member."""

from __future__ import annotations

import torch

from headtohead.data.vocabulary import PAD
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within
from headtohead.training.evaluate import token_losses


@invariant("loss")
def smoothed_loss_equals_the_frameworks(subject: Subject) -> Verdict:
    """The label-smoothed mean token loss equals torch.nn.CrossEntropyLoss for each member."""
    logits, sentences = subject.plain, subject.sentences
    differences = []
    for smoothing in (0.0, 0.1):
        ours = token_losses(logits, sentences.target, smoothing)
        theirs = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=smoothing)
        for member in range(len(logits)):
            words = (sentences.target[member] != PAD).sum()
            expected = theirs(logits[member].flatten(0, 1), sentences.target[member].flatten())
            differences.append(abs(float(ours[member].sum() / words - expected)))
    return within(max(differences), "difference from torch.nn.CrossEntropyLoss")
