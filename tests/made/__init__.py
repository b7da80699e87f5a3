"""Helpers of tests in several folders: tables of cases, studies, registries."""

import re
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.plugins import registry
from headtohead.plugins.hookspecs import hookimpl
from headtohead.storage import metrics

if TYPE_CHECKING:
    from headtohead.testing import Verdict


def case_table(
    names: str | Sequence[str], rows: Iterable[Any], *, default: int, ids: Any = None
) -> pytest.MarkDecorator:
    """Parametrize a test; all rows but the first ``default`` belong to the slow tier."""
    one_name = isinstance(names, str) and "," not in names
    cases = [
        row if hasattr(row, "marks") else pytest.param(*([row] if one_name else row))
        for row in rows
    ]
    slow = [case._replace(marks=[*case.marks, pytest.mark.slow]) for case in cases[default:]]
    return pytest.mark.parametrize(names, [*cases[:default], *slow], ids=ids)


def kind_table(names: str, rows: Iterable[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Parametrize a test by rows of kind, name and values; all rows but the first of each kind belong to the slow tier.

    The kind is an argument, too, if ``names`` start with it.
    """
    kinds: set[str] = set()
    cases = []
    for kind, name, *values in rows:
        given = [kind, *values] if names.startswith("kind,") else values
        cases.append(
            pytest.param(
                *given, id=f"{kind}-{name}", marks=[pytest.mark.slow] if kind in kinds else []
            )
        )
        kinds.add(kind)
    return pytest.mark.parametrize(names, cases)


_without_plugins: dict[tuple[str, ...], list[registry.Registry]] = {}
"""Unused registries of built-ins and installed plugins, by search path; loading one takes 60 ms."""


@contextmanager
def separate_registry(*plugins: object) -> Iterator[None]:
    """Have a registry in the block with the plugins of a new process and these objects; then, the one before it.

    What the block registers is not registered in later blocks.
    """
    unused = _without_plugins.setdefault(tuple(sys.path), [])
    with pytest.MonkeyPatch.context() as patch:
        first = unused.pop() if unused else None
        entries = (
            {family: dict(of_family) for family, of_family in first.entries.items()}
            if first
            else {}
        )
        names = {name for name, _ in first.manager.list_name_plugin()} if first else set()
        patch.setattr(registry, "_current", first)
        patch.setattr(metrics, "_described", {})
        patch.setattr(metrics, "_spans", {})
        for plugin in plugins:
            registry.register(plugin)
        yield
        used = registry._current
        if used is first is not None:
            for name in {name for name, _ in first.manager.list_name_plugin()} - names:
                first.manager.unregister(name=name)
            first.entries.update(entries)
            for loaded in (first.files, first.modules, first.objects):
                loaded.clear()
        if used and not (used.files or used.modules or used.objects):
            unused.append(used)


def plugin_of(**entries: Mapping[str, type]) -> object:
    """Return a plugin object that registers the given entries by family."""

    def returning(of_family: Mapping[str, type]) -> Callable[[object], Mapping[str, type]]:
        return lambda self: of_family

    names = {family: f"register_{family}s" for family in entries}
    hooks = {
        names[family]: hookimpl(returning(own), specname=names[family])
        for family, own in entries.items()
    }
    return type("Plugin", (), hooks)()


def plugin_file(body: str, family: str = "positional", name: str = "own", before: str = "") -> str:
    """Return a plugin file with a class ``Own`` of a family, and the text ``before`` it."""
    base = family.capitalize()
    return f'''"""A plugin of a test."""
import torch
from headtohead.plugin import {base}, hookimpl
{before}

class Own({base}):
    """An entry of a test."""

{textwrap.indent(textwrap.dedent(body), "    ")}

@hookimpl
def register_{family}s():
    return {{"{name}": Own}}
'''


def matches(line: str, pattern: str) -> bool:
    """Return whether a line is the pattern, in which ``*`` stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), line) is not None


PATIENT = {"H2H_TRACKING_SECONDS": "600"}
"""For commands that log to a tracker: on a slow machine that tests others meanwhile, the default is too short."""

LIMIT = """
import os, resource, sys
for word in sys.argv[1].split():
    name, value = word.split("=")
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(value), int(value)))
# Python 3.11 would replace compiled modules by cut ones, which no later process can import.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.execv(sys.argv[2], sys.argv[2:])
"""


def with_limits(command: Sequence[str], **limits: int) -> list[str]:
    """Return a command that executes another one with limits, which are named as in the module ``resource``."""
    return [
        sys.executable,
        "-c",
        LIMIT,
        " ".join(f"{name}={value}" for name, value in limits.items()),
        *command,
    ]


def free_port() -> int:
    """Return a port of this machine that no process uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """Mount a file system at a folder, or skip the test where this is not permitted."""
    done = subprocess.run(["mount", *options, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mount a folder over itself, read-only; permissions do not bind root."""
    folder.mkdir(exist_ok=True)
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Answer every request to a local server, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):
                answer(self)
            self.close_connection = True

        do_POST = do_PUT = do_GET

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        listening.handle_error = lambda request, address: None  # type: ignore[method-assign]
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()
            thread.join()


def moved(model: Any, scale: float = 0.3) -> Any:
    """Return a model in evaluation mode after random moves of its parameters, the same in every call."""
    import torch

    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


def refused(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the error of a call, which is a single line."""
    with pytest.raises(HeadToHeadError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error of a command with exit code 2, which is all that it prints on standard error."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("h2h: ")
    return line.removeprefix("h2h: ")


def unexpected(verdicts: Mapping[Any, "Verdict"]) -> dict[Any, str]:
    """Return the violations that no setting is known to cause."""
    return {
        name: str(verdict) for name, verdict in verdicts.items() if verdict.outcome == "violated"
    }
