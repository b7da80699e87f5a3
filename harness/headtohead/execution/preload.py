"""Modules that the fork server imports once for all workers."""

import os
import signal

# A waiting thread of libgomp spins. Where other programs use the same cores, the threads that it waits for cannot run
# meanwhile: on two cores with ten other busy processes, a loop with two threads took 100 s instead of 0.6 s.
# With this count it took 20 to 27 s, and on idle cores as long as before. It is read when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# Ctrl-C reaches the server too; the parent reports it and ends the server. Workers restore the handler.
signal.signal(signal.SIGINT, signal.SIG_IGN)

import sacrebleu.metrics  # noqa: E402
import torch.fx.experimental.symbolic_shapes  # noqa: E402  used by torch.autograd.backward, takes half a second

import headtohead.execution.worker  # noqa: E402, F401  imported for the workers
import headtohead.plugins.registry  # noqa: E402

headtohead.plugins.registry.current()

__all__ = ["sacrebleu", "torch"]
