"""Targets that are not shifted: the word to predict is the word that is read."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, counted
from headtohead.training.loop import split_tensors


@shows("answer given")
def answer_given(case: Case) -> Iterator[Fact]:
    """Compare what the decoder reads with what it must write, as training pairs them."""
    said, tokens = _read_where_said(case, "same")
    shifted, asked = _read_where_said(case, "next")
    yield Fact(
        "answer given",
        f"the loss predicts its own input: {said} of {counted(tokens, 'target token')} are read in "
        f"the very place where they must be said; with targets shifted by one it would be "
        f"{shifted} of {asked}",
        {"tokens": tokens, "read_where_said": said, "read_where_said_if_shifted": shifted},
    )


def _read_where_said(case: Case, target: str) -> tuple[int, int]:
    """Return how many tokens are read where they are written, and how many are written."""
    train = case.config.train.model_copy(update={"target": target})
    config = case.config.model_copy(update={"train": train})
    pairs = split_tensors(config, case.data, torch.device("cpu"))["train"]
    reads, writes = pairs.target[:, 0], pairs.target[:, 1]
    live = torch.arange(reads.shape[1]) < pairs.target_lengths[:, None]
    return int((reads == writes)[live].sum()), int(live.sum())
