"""The steps of a trace as a tree of parts: sides, layers, attentions, heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headtohead.tools.trace.steps import Step, Trace

OUTPUT = "output"
"""The part of the last steps, which have no place in their names."""

HEADINGS = {
    "encoder": "Encoder",
    "decoder": "Decoder",
    OUTPUT: "Words",
    "self": "self-attention",
    "cross": "attention to the encoder",
    "between": "feed-forward between the attentions",
    "feed-forward": "feed-forward",
}


@dataclass
class Part:
    """A part of the model, its steps and smaller parts in their order."""

    path: str
    hears_source: bool = True
    items: list[Step | Part] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The name of the part alone."""
        words = self.path.split(".")
        if words[-1] == "cross" and not self.hears_source:
            return DEAF
        if words[-1] in HEADINGS:
            return HEADINGS[words[-1]]
        kind = words[-2] if words[-2:-1] and words[-2] in NUMBERED else "layer"
        return f"{kind} {words[-1]}"

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
"""Parts of an attention that have a number: heads, and the maps that a head is mixed of."""

DEAF = "second attention, to the decoder itself"


def as_tree(trace: Trace) -> list[Part]:
    """Return the sides and the output, each with everything that is in it."""
    known: dict[str, Part] = {}
    top: list[Part] = []
    for step in trace:
        above: Part | None = None
        for path in _paths(step.place or OUTPUT):
            if path not in known:
                known[path] = Part(path, trace.hears_source)
                (top if above is None else above.items).append(known[path])
            above = known[path]
        assert above is not None
        above.items.append(step)
    return top


def _paths(place: str) -> list[str]:
    """Return the paths of a place from the largest part down; ``head`` alone is no part."""
    words = place.split(".")
    paths = [".".join(words[: end + 1]) for end in range(len(words))]
    return [path for path in paths if path.rpartition(".")[2] not in NUMBERED]
