"""What the forkserver loads once for all workers."""

import sacrebleu.metrics
import torch._dynamo  # a second, which the first optimizer of every process would load otherwise

import headtohead.plugins
import headtohead.runs.worker

headtohead.plugins.current()

__all__ = ["sacrebleu", "torch"]
