"""The loss is the framework's, member by member."""

from __future__ import annotations

import torch

from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within
from headtohead.training.evaluate import token_losses
from headtohead.training.tensors import IGNORE_INDEX


@invariant("loss")
def smoothed_loss_equals_the_frameworks(subject: Subject) -> Verdict:
    """The label-smoothed mean token loss equals torch.nn.CrossEntropyLoss for each member."""
    logits, sentences = subject.plain, subject.sentences
    labels = sentences.target.where(sentences.live_target, IGNORE_INDEX)
    differences = []
    for smoothing in (0.0, 0.1):
        ours = token_losses(logits, labels, smoothing)
        theirs = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
        for member, live in enumerate(sentences.live_target):
            expected = theirs(logits[member][live], sentences.target[member][live])
            differences.append(abs(float(ours[member].sum() / live.sum() - expected)))
    return within(max(differences), "difference from torch.nn.CrossEntropyLoss")
