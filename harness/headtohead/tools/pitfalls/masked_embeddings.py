"""A mask added to embeddings: later rows depend on few earlier tokens."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headtohead.planning.compatibility import undefined_reason
from headtohead.tools.pitfalls.case import Case, other_word
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact

LENGTHS = range(1, 13)


@shows("mask on embeddings")
def mask_on_embeddings(case: Case) -> Iterator[Fact]:
    """Replace each target token in turn, and find the lengths that the style accepts."""
    target = case.target
    changed = [
        [*target[:place], other_word(word, case.words[1]), *target[place + 1 :]] for place, word in enumerate(target)
    ]
    logits = case.logits([case.source] * (len(target) + 1), [target, *changed])
    moved = (logits[1:] - logits[0]).abs().amax(-1)  # [changed token, row of logits]
    first = float(moved[:, 0].max())
    yield Fact(
        "mask on embeddings",
        f"row 0 hears no token: whichever token is exchanged, its own included, its logits move by at most {first:.1g}",
        {"row_0": first},
    )
    later, own = _off_diagonal(moved), float(moved.diagonal()[1:].min())
    yield Fact(
        "mask on embeddings",
        f"earlier tokens reach later logits only at {later:.1g}, where a token moves its own row "
        f"by {own:.1g} or more: -1e9 stands in the values beside them",
        {"earlier_tokens": later, "own_token": own},
    )
    defined = [length for length in LENGTHS if _reason(case, length) is None]
    width = case.config.model.d_model
    yield Fact(
        "mask on embeddings",
        f"of target lengths 1 to {LENGTHS[-1]} it is defined for {_listed(defined)} alone: the "
        f"mask [time, time] is added to embeddings [time, {width}]",
        {"d_model": width, "defined_lengths": len(defined)},
    )


def _off_diagonal(moved: Tensor) -> float:
    """Return the largest change of a later row by a replaced token."""
    return float(moved.triu(1)[:, 1:].max())


def _reason(case: Case, length: int) -> str | None:
    longest = {"source": len(case.source), "target": length}
    return undefined_reason(case.config, longest, case.registry)


def _listed(lengths: list[int]) -> str:
    return ", ".join(str(length) for length in lengths) or "none"
