"""The trace of a forward pass, step by step: every matrix with its name, shape and formula."""

from __future__ import annotations

from headtohead_notebooks.trace.collect import collect
from headtohead_notebooks.trace.inputs import TraceInputs
from headtohead_notebooks.trace.steps import Trace, TraceStep

__all__ = ["Trace", "TraceInputs", "TraceStep", "collect"]
