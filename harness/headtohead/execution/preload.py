"""Modules that the fork server imports once for all workers."""

import sacrebleu.metrics
import torch._dynamo  # takes a second; the first optimizer of a process imports it

import headtohead.execution.worker
import headtohead.plugins.registry

headtohead.plugins.registry.current()

__all__ = ["sacrebleu", "torch"]
