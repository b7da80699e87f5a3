"""A terminal of a given width, in which code of this process prints."""

import fcntl
import os
import re
import struct
import termios
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress

import pytest

from headtohead_judge.layout import text_width

END = b"\0"
"""What marks the end of the output; a process that the call has started can keep the terminal open."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def in_terminal(columns: int, call: Callable[[], object], **environment: str) -> str:
    """Return what a call prints to a terminal; it may exit."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    printed = bytearray()

    def read() -> None:
        while not printed.endswith(END):
            printed.extend(os.read(leader, 65536))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with (
            open(follower, "w", encoding="utf-8", closefd=False) as stream,
            pytest.MonkeyPatch.context() as patch,
        ):
            for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
                patch.delenv(name, raising=False)
            patch.setenv("TERM", "xterm")
            for name, value in environment.items():
                patch.setenv(name, value)
            with redirect_stdout(stream), redirect_stderr(stream), suppress(SystemExit):
                call()
    finally:
        os.write(follower, END)
        reader.join()
        os.close(follower)
        os.close(leader)
    return printed.removesuffix(END).decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    """Return printed text without colours."""
    return COLOUR.sub("", text)


def too_wide(text: str, columns: int) -> list[str]:
    """Return the lines that a terminal of this width breaks; a single word that is wider is no fault."""
    wide = []
    for line in plain(text).splitlines():
        if text_width(line) > columns and len(line.split()) > 1:
            wide.append(line)
    return wide
