"""What the forkserver loads once for all workers."""

import sacrebleu.metrics
import torch._dynamo  # a second, which the first optimizer of every process would load otherwise

import headtohead.execution.worker
import headtohead.plugins.registry

headtohead.plugins.registry.current()

__all__ = ["sacrebleu", "torch"]
