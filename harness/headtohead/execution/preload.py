"""Modules that the fork server imports once for all workers."""

import gc
import os
import signal

# A waiting thread of libgomp spins. Where other programs use the same cores, the threads that it waits for cannot run
# meanwhile: on two cores with ten other busy processes, a loop with two threads took 100 s instead of 0.6 s.
# With this count it took 20 to 27 s, and on idle cores as long as before. It is read when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# Ctrl-C reaches the server too; the parent reports it and ends the server. Workers restore the handler.
# The parent started this process with the signal blocked.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

# What is imported stays in memory, so that a garbage collection during the imports finds nothing.
gc.disable()

import sacrebleu.metrics  # noqa: E402
import torch  # noqa: E402

import headtohead.execution.worker  # noqa: E402, F401  imported for the workers
import headtohead.plugins.registry  # noqa: E402

headtohead.plugins.registry.current()
gc.freeze()
gc.enable()

__all__ = ["sacrebleu", "torch"]
