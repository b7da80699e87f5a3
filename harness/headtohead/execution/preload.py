"""Modules that the fork server imports once for all workers."""

import signal

# Ctrl-C reaches the server too; the parent reports it and ends the server. Workers restore the handler.
signal.signal(signal.SIGINT, signal.SIG_IGN)

import sacrebleu.metrics  # noqa: E402
import torch.fx.experimental.symbolic_shapes  # noqa: E402  used by torch.autograd.backward, takes half a second

import headtohead.execution.worker  # noqa: E402
import headtohead.plugins.registry  # noqa: E402

headtohead.plugins.registry.current()

__all__ = ["sacrebleu", "torch"]
