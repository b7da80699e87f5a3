"""The share of computation spent on padding, and the effect of padding that is not masked."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.data.batches import Padding
from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, percent
from headtohead.training.loop import make_batches

PADDING = 2


@shows("fixed padding")
def fixed_padding(case: Case) -> Iterator[Fact]:
    """Compare an epoch's batches with batches padded to their longest sentence."""
    fixed, longest = (_padding(case, to) for to in (case.config.quirks.pad_to, "batch"))
    tokens = case.config.quirks.pad_to
    yield Fact(
        "fixed padding",
        f"every sentence is padded to {tokens} tokens: {percent(fixed.source)} of what the encoder "
        f"computes and {percent(fixed.target)} of what the decoder computes is padding; padded to "
        f"the longest of each batch it would be {percent(longest.source)} and "
        f"{percent(longest.target)}",
        {
            "tokens": int(tokens),
            "source_padding": fixed.source,
            "target_padding": fixed.target,
            "source_padding_to_longest": longest.source,
            "target_padding_to_longest": longest.target,
        },
    )


def _padding(case: Case, pad_to: int | str) -> Padding:
    train = case.config.train.model_copy(update={"pad_to": pad_to})
    config = case.config.model_copy(update={"train": train})
    return make_batches(config, case.training, case.data.record["longest"]).padding()


@shows("padding not masked")
def padding_is_read(case: Case) -> Iterator[Fact]:
    """Compare the logits of a sentence alone and in a batch with a longer sentence."""
    source, target = ([*ids, *ids[:PADDING]] for ids in (case.source, case.target))
    alone = case.logits([case.source], [case.target])
    batch = case.logits([case.source, source], [case.target, target])
    moved = float((batch[0, : len(case.target)] - alone[0]).abs().max())
    yield Fact(
        "padding not masked",
        f"a sentence in a batch with a longer one, {PADDING} tokens of padding behind it, gets "
        f"logits that differ by up to {moved:.3g} from those it gets alone",
        {"change": moved},
    )
