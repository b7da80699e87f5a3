"""Training of a stack in a process on another machine, and its messages to the sender.

Cluster launchers differ only in how they start this process. The process checks whether it can access the stack's
folder, trains the stack in that folder or in a copy, and sends messages.
"""

from __future__ import annotations

import hashlib
import importlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from headtohead import files
from headtohead.config.versions import versions
from headtohead.execution import stack_archive
from headtohead.execution.local import LocalLauncher, no_gpu
from headtohead.execution.stack_archive import FOLDER_TOKEN
from headtohead.planning.stacking import processors
from headtohead.plugins.launcher import Job, WorkerPlugins
from headtohead.plugins.registry import BUILT_IN

HISTORY_SECONDS = 5.0
"""Time between archives of a copy's metrics and progress, without tensors."""


@dataclass(frozen=True)
class Message:
    """A message of a remote process.

    ``exit`` is the last message, with the worker's exit code and, from a copy, an archive of the whole stack.
    ``archive`` is sent repeatedly while a copy is trained. ``away``: the machine cannot access the stack's folder and
    has received no copy. ``refused``: the machine must not train the stack, for the reason in ``text``.
    """

    kind: Literal["exit", "archive", "away", "refused"]
    code: int = 0
    archive: bytes = field(default=b"", repr=False)
    text: str = ""


@dataclass(frozen=True)
class RemoteJob:
    """A stack to train on another machine; ``save_seconds`` is the time between archives with resume points."""

    stack: str
    device: str
    folder_token: str
    code: str
    save_seconds: float = 600.0
    plugins: WorkerPlugins = field(default_factory=WorkerPlugins)

    def train(self, fetch: Callable[[], tuple[bytes, bytes]] | None = None) -> Iterator[Message | None]:
        """Train the stack; called on the other machine.

        Args:
            fetch: Returns the stack's archive and its prepared data, to train a copy; None to train in the stack's
                own folder.

        Yields:
            Messages, and None a few times per second during training.
        """
        own_code = code_version()
        if own_code != self.code:
            yield Message(
                "refused",
                text=f"'{socket.gethostname()}' has headtohead {own_code}, this "
                f"machine {self.code}; install the same version on both",
            )
        elif self.device == "cuda" and not processors("cuda"):
            yield Message("refused", text=no_gpu())
        elif fetch is None:
            yield from self._train(Path(self.stack)) if self._has_folder() else [Message("away")]
        else:
            with files.scratch_folder() as folder:
                stack = stack_archive.unpack(*fetch(), folder)
                yield from self._train_copy(stack)

    def _has_folder(self) -> bool:
        """Compare the folder's token with the sender's, since the same path may be another folder here."""
        try:
            return (Path(self.stack) / FOLDER_TOKEN).read_text() == self.folder_token
        except OSError:
            return False

    def _train(self, stack: Path) -> Iterator[Message | None]:
        # A separate process frees its memory at its end, and ends when this process is killed.
        job = Job(stack, self.device, plugins=self.plugins)
        for ended in LocalLauncher().launch([job], workers=1):
            yield None if ended is None else Message("exit", code=ended.code)

    def _train_copy(self, stack: Path) -> Iterator[Message | None]:
        last_history = last_save = time.monotonic()
        for message in self._train(stack):
            moment = time.monotonic()
            if message is not None:
                yield Message("exit", code=message.code, archive=stack_archive.pack(stack))
            elif moment - last_save >= self.save_seconds:
                last_history = last_save = moment
                yield Message("archive", archive=stack_archive.pack(stack))
            elif moment - last_history >= HISTORY_SECONDS:
                last_history = moment
                yield Message("archive", archive=stack_archive.pack(stack, tensors=False))
            else:
                yield None


@cache
def code_version() -> str:
    """Return the version and a hash of the installed code, which must be equal on both machines."""
    code_hash = hashlib.sha256()
    for package in ("headtohead", BUILT_IN[0].partition(".")[0]):
        root = Path(importlib.import_module(package).__path__[0])
        for path in sorted(root.rglob("*.py")):
            code_hash.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return f"{versions()['headtohead']} (code {code_hash.hexdigest()[:8]})"
