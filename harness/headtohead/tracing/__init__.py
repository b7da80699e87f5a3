"""One forward pass, step by step: every matrix named, shaped, and with the formula that made it."""

from __future__ import annotations

from headtohead.tracing.collect import collect
from headtohead.tracing.sentences import Sentences, read_sentences
from headtohead.tracing.steps import Step, Trace

__all__ = ["Sentences", "Step", "Trace", "collect", "read_sentences"]
