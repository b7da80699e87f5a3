"""The steps of a trace as a tree of parts: sides, layers, attentions, heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headtohead.tools.trace.steps import Step, Trace

OUTPUT = "output"
"""The part of the last steps, whose names have no part."""

HEADINGS = {
    "encoder": "Encoder",
    "decoder": "Decoder",
    OUTPUT: "Logits",
    "self": "self-attention",
    "cross": "attention to the encoder",
    "between": "feed-forward between the attentions",
    "feed-forward": "feed-forward",
}


@dataclass
class Part:
    """A part of the model, its steps and smaller parts in their order."""

    path: str
    cross_reads_encoder: bool = True
    items: list[Step | Part] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The name of the part alone."""
        names = self.path.split(".")
        if names[-1] == "cross" and not self.cross_reads_encoder:
            return SELF_CROSS
        if names[-1] in HEADINGS:
            return HEADINGS[names[-1]]
        kind = names[-2] if names[-2:-1] and names[-2] in NUMBERED else "layer"
        return f"{kind} {names[-1]}"

    @property
    def depth(self) -> int:
        """1 for a side, 2 for a layer, 3 for an attention or a feed-forward, 4 for a head."""
        return min(len(self.path.split(".")), 4)

    @property
    def parts(self) -> list[Part]:
        """The smaller parts alone."""
        return [item for item in self.items if isinstance(item, Part)]

    def runs(self) -> Iterator[Part | list[Step]]:
        """Yield smaller parts, and the steps between them together."""
        steps: list[Step] = []
        for item in self.items:
            if isinstance(item, Step):
                steps.append(item)
                continue
            if steps:
                yield steps
                steps = []
            yield item
        if steps:
            yield steps


NUMBERED = ("head", "map")
"""Numbered parts of an attention: heads, and the maps that are mixed into a head."""

SELF_CROSS = "second attention, to the decoder itself"


def as_tree(trace: Trace) -> list[Part]:
    """Return the parts at the top: encoder, decoder and output."""
    known: dict[str, Part] = {}
    top: list[Part] = []
    for step in trace:
        above: Part | None = None
        for path in _paths(step.part or OUTPUT):
            if path not in known:
                known[path] = Part(path, trace.cross_reads_encoder)
                (top if above is None else above.items).append(known[path])
            above = known[path]
        assert above is not None
        above.items.append(step)
    return top


def _paths(part: str) -> list[str]:
    """Return the paths from the largest part down; ``head`` without a number is no part."""
    names = part.split(".")
    paths = [".".join(names[: end + 1]) for end in range(len(names))]
    return [path for path in paths if path.rpartition(".")[2] not in NUMBERED]
