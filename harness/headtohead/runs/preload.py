"""What the forkserver loads once for all workers."""

import sacrebleu.metrics

import headtohead.plugins
import headtohead.runs.worker

headtohead.plugins.current()

__all__ = ["sacrebleu"]
