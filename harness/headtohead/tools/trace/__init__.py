"""One forward pass, step by step: every matrix with its name, shape and formula."""

from __future__ import annotations

from headtohead.tools.trace.collect import collect
from headtohead.tools.trace.inputs import TraceInputs
from headtohead.tools.trace.steps import Trace, TraceStep

__all__ = ["Trace", "TraceInputs", "TraceStep", "collect"]
