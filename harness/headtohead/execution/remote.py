"""A stack trained by another process, perhaps on another machine: what is sent, what it says.

The launchers for clusters differ in how they start a process somewhere. What that process does is
this: see whether the stack's folder is there, train in it or in a copy, and report.
"""

from __future__ import annotations

import hashlib
import importlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from headtohead.config.versions import versions
from headtohead.execution import stack_archive
from headtohead.execution.local import LocalLauncher, no_gpu
from headtohead.planning.stacking import processors
from headtohead.plugins.launcher import Job, WorkerPlugins
from headtohead.plugins.registry import BUILT_IN

MARK = ".mark"
"""The file in a stack's folder by which another machine recognises the folder."""

LIGHT_SECONDS = 5.0
"""How often a copy's histories are sent home, for whoever watches."""


@dataclass(frozen=True)
class Message:
    """What a remote process says.

    ``exit`` comes last, with the exit code of the worker and, from a copy, the parcel of all of it.
    ``archive`` comes now and then from a copy that is trained. ``away`` says that the stack's
    folder is not here and nothing was sent in its place; ``refused``, in ``text``, that this
    machine must not train it.
    """

    kind: Literal["exit", "archive", "away", "refused"]
    code: int = 0
    archive: bytes = field(default=b"", repr=False)
    text: str = ""


@dataclass(frozen=True)
class RemoteJob:
    """One stack to train elsewhere; ``save_seconds`` is the time between copied resume points."""

    stack: str
    device: str
    mark: str
    code: str
    save_seconds: float = 600.0
    plugins: WorkerPlugins = field(default_factory=WorkerPlugins)

    def train(self, fetch: Callable[[], tuple[bytes, bytes]] | None = None) -> Iterator[Message | None]:
        """Train the stack; called on the other machine.

        Args:
            fetch: Gives the stack's parcel and its prepared data, to train a copy; None to train
                in the stack's own folder.

        Yields:
            None a few times a second while it trains, and what there is to say.
        """
        here = code_mark()
        if here != self.code:
            yield Message(
                "refused",
                text=f"'{socket.gethostname()}' has headtohead {here}, this "
                f"machine {self.code}; install the same on both",
            )
        elif self.device == "cuda" and not processors("cuda"):
            yield Message("refused", text=no_gpu())
        elif fetch is None:
            folder = self._sees_folder()
            yield from self._train(Path(self.stack)) if folder else [Message("away")]
        else:
            with tempfile.TemporaryDirectory(prefix="h2h-") as place:
                stack = stack_archive.unpack(*fetch(), Path(place))
                yield from self._train_copy(stack)

    def _sees_folder(self) -> bool:
        """Look for the mark that the sender left; the same path elsewhere may be another folder."""
        try:
            return (Path(self.stack) / MARK).read_text() == self.mark
        except OSError:
            return False

    def _train(self, stack: Path) -> Iterator[Message | None]:
        # A process of its own: what it holds is free again at its end, and when this process is
        # killed it ends too.
        job = Job(stack, self.device, plugins=self.plugins)
        for ended in LocalLauncher().launch([job], workers=1):
            yield None if ended is None else Message("exit", code=ended.code)

    def _train_copy(self, stack: Path) -> Iterator[Message | None]:
        told = saved = time.monotonic()
        for message in self._train(stack):
            moment = time.monotonic()
            if message is not None:
                yield Message("exit", code=message.code, archive=stack_archive.pack(stack))
            elif moment - saved >= self.save_seconds:
                told = saved = moment
                yield Message("archive", archive=stack_archive.pack(stack))
            elif moment - told >= LIGHT_SECONDS:
                told = moment
                yield Message("archive", archive=stack_archive.pack(stack, heavy=False))
            else:
                yield None


@cache
def code_mark() -> str:
    """Return version and digest of the code here: two machines must agree on both."""
    digest = hashlib.sha256()
    for package in ("headtohead", BUILT_IN[0].partition(".")[0]):
        root = Path(importlib.import_module(package).__path__[0])
        for path in sorted(root.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return f"{versions()['headtohead']} (code {digest.hexdigest()[:8]})"
