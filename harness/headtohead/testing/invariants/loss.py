"""The loss of each member equals that of `torch.nn.CrossEntropyLoss`."""

from __future__ import annotations

import torch

from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within
from headtohead.training.evaluate import token_losses
from headtohead.training.tensors import IGNORE_INDEX


@invariant("loss")
def smoothed_loss_equals_torch_cross_entropy(subject: Subject) -> Verdict:
    """The label-smoothed mean token loss of each member equals that of torch.nn.CrossEntropyLoss."""
    logits, sentences = subject.reference_logits, subject.sentences
    labels = sentences.target.where(sentences.target_nonpad, IGNORE_INDEX)
    differences = []
    for smoothing in (0.0, 0.1):
        losses = token_losses(logits, labels, smoothing)
        cross_entropy = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
        for member, nonpad in enumerate(sentences.target_nonpad):
            expected = cross_entropy(logits[member][nonpad], sentences.target[member][nonpad])
            differences.append(abs(float(losses[member].sum() / nonpad.sum() - expected)))
    return within(max(differences), "difference from torch.nn.CrossEntropyLoss")
