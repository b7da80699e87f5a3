"""The training loss of each member and its gradients equal those of `torch.nn.CrossEntropyLoss`."""

from __future__ import annotations

import torch

from headtohead.model.loss import IGNORE_INDEX, loss_gradients
from headtohead.testing.extremum import largest_number
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within


@invariant("loss")
def smoothed_loss_equals_torch_cross_entropy(subject: Subject) -> Verdict:
    """The label-smoothed mean token loss of each member and its gradients equal those of torch.nn.CrossEntropyLoss."""
    model, sentences = subject.model, subject.sentences
    with torch.no_grad():
        memory = model.encode(sentences.source, sentences.source_lengths)
        output = model.decode(sentences.target, sentences.target_lengths, memory, sentences.source_lengths)
    labels = sentences.target.where(sentences.target_nonpad, IGNORE_INDEX).flatten(1)
    num_labels = sentences.target_nonpad.flatten(1).sum(1).to(output.dtype)
    weight, bias = model.output_map
    leaves = [tensor.detach().requires_grad_() for tensor in (output.flatten(1, 2), weight, bias) if tensor is not None]
    differences = []
    for smoothing in (0.0, 0.1):
        hidden, matrix, *shift = leaves
        result = loss_gradients(hidden, matrix, shift[0] if shift else None, labels, num_labels, smoothing)
        logits = sum(shift, hidden @ matrix)
        cross_entropy = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
        expected = torch.stack([cross_entropy(*member) for member in zip(logits, labels, strict=True)])
        gradients = torch.autograd.grad(expected.sum(), leaves)
        found = (result.hidden, result.weight, result.bias)
        for value, reference in zip((result.losses, *found), (expected.detach(), *gradients), strict=False):
            assert value is not None
            differences.append(float((value - reference).abs().max()))
    return within(largest_number(differences), "difference from torch.nn.CrossEntropyLoss")
