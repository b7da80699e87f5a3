"""Targets that are not shifted: each label equals the decoder input at its position."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, counted
from headtohead.training.loop import split_tensors


@shows("targets not shifted")
def answer_given(case: Case) -> Iterator[Fact]:
    """Compare decoder inputs with labels, as training pairs them."""
    equal, tokens = _labels_in_input(case, "same")
    equal_if_shifted, labels = _labels_in_input(case, "next")
    yield Fact(
        "targets not shifted",
        f"the loss predicts its own input: {equal} of {counted(tokens, 'target token')} are the decoder "
        f"input at the position where they are the label; with targets shifted by one it would be "
        f"{equal_if_shifted} of {labels}",
        {"tokens": tokens, "labels_in_input": equal, "labels_in_input_if_shifted": equal_if_shifted},
    )


def _labels_in_input(case: Case, target: str) -> tuple[int, int]:
    """Return the number of labels that equal the input at their position, and the number of labels."""
    train = case.config.train.model_copy(update={"target": target})
    config = case.config.model_copy(update={"train": train})
    pairs = split_tensors(config, case.data, torch.device("cpu"))["train"]
    inputs, labels = pairs.target[:, 0], pairs.target[:, 1]
    live = torch.arange(inputs.shape[1]) < pairs.target_lengths[:, None]
    return int((inputs == labels)[live].sum()), int(live.sum())
