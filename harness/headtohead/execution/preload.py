"""Modules that the fork server imports once for all workers."""

import os
import signal

# A thread of libgomp that waits for the others spins, by default about a millisecond. Where other programs use the
# same cores, the threads that it waits for cannot run meanwhile: on two shared cores, two threads took 25 times as
# long. With this count they took 5 times as long, and on idle cores the same time. Read when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# Ctrl-C reaches the server too; the parent reports it and ends the server. Workers restore the handler.
signal.signal(signal.SIGINT, signal.SIG_IGN)

import sacrebleu.metrics  # noqa: E402
import torch.fx.experimental.symbolic_shapes  # noqa: E402  used by torch.autograd.backward, takes half a second

import headtohead.execution.worker  # noqa: E402
import headtohead.plugins.registry  # noqa: E402

headtohead.plugins.registry.current()

__all__ = ["sacrebleu", "torch"]
