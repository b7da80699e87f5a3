"""The steps of a trace as a tree of model parts: sides, layers, attentions, heads."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from headtohead_notebooks.trace.steps import Trace, TraceStep, enclosing_paths

OUTPUT = "output"
"""The part of the last steps, which have no part in their names."""

HEADINGS = {
    "encoder": "Encoder",
    "decoder": "Decoder",
    OUTPUT: "Logits",
    "self": "self-attention",
    "cross": "attention to the encoder",
    "between": "feed-forward between the attentions",
    "feed-forward": "feed-forward",
}
SELF_CROSS = "second attention, to the decoder itself"

NUMBERED = ("head", "map")
"""Numbered parts of an attention: heads, and the maps that are mixed into a head."""


@dataclass
class TracePart:
    """A part of the model with its steps and smaller parts, in order."""

    path: str
    attends_to_source: bool = True
    items: list[TraceStep | TracePart] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The title of the part without its enclosing parts."""
        names = self.path.split(".")
        if names[-1] == "cross" and not self.attends_to_source:
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
    def parts(self) -> list[TracePart]:
        """The smaller parts without the steps."""
        return [item for item in self.items if isinstance(item, TracePart)]

    @property
    def anchor(self) -> str:
        """Id of the first step, or of the part if it starts with a smaller part."""
        first = self.items[0]
        return first.name if isinstance(first, TraceStep) else self.path

    @property
    def starts_open(self) -> bool:
        """Whether the page shows the part at first: sides, and the first of layers and heads."""
        names = self.path.split(".")
        return len(names) == 1 or all(name == "0" for name in names if name.isdigit())

    @property
    def groups(self) -> list[tuple[bool, list[TraceStep | TracePart]]]:
        """The items in order, consecutive steps together; True marks a group of steps."""
        groups = groupby(self.items, lambda item: isinstance(item, TraceStep))
        return [(are_steps, list(items)) for are_steps, items in groups]


def as_tree(trace: Trace) -> list[TracePart]:
    """Return the top-level parts: encoder, decoder and output."""
    root = TracePart("")
    parts: dict[str, TracePart] = {}
    for step in trace:
        parent = root
        for path in enclosing_paths(step.part or OUTPUT):
            if path.rpartition(".")[2] in NUMBERED:
                continue  # "head" without a number is no part
            if path not in parts:
                parts[path] = TracePart(path, trace.attends_to_source)
                parent.items.append(parts[path])
            parent = parts[path]
        parent.items.append(step)
    return root.parts
