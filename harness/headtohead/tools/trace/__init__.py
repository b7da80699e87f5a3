"""One forward pass, step by step: every matrix with its name, shape and formula."""

from __future__ import annotations

from headtohead.tools.trace.collect import collect
from headtohead.tools.trace.sentences import Sentences, read_sentences
from headtohead.tools.trace.steps import Step, Trace

__all__ = ["Sentences", "Step", "Trace", "collect", "read_sentences"]
