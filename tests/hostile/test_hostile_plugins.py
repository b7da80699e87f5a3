"""Faulty plugins: each is named in one line, with its distribution or file."""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from headtohead.plugins.commands import plugin_commands
from headtohead.plugins.registry import load_registry
from made import kind_table, matches, refused

HEAD = """
import headtohead as h2h
from headtohead.plugin import Dataset, Options, Positional, Recipe, hookimpl

class Mine(Positional):
    pass
"""

TORCH = "call a function of the plugin instead, because other variants use the original function"


def hook(mapping: str, more: str = "", family: str = "positional") -> str:
    """Return a plugin whose hook returns the mapping."""
    return f"{HEAD}\n{more}\n\n@hookimpl\ndef register_{family}s():\n    return {mapping}\n"


Case = tuple[str, str, str, str]
"""Kind, name, the source of a plugin and the error after "plugin 'x' (y)"; ``*`` stands for any text."""


def named(name: str) -> Case:
    expected = "; a name is at most 60 letters and digits, with single . _ - between them"
    message = f": register_positionals returned the name {name!r:.80}{expected}"
    return "name", repr(name)[1:15], hook(f"{{{name!r}: Mine}}"), message


def raising(kind: str, code: str, error: str) -> Case:
    return kind, code.partition("(")[0], f"{HEAD}\n{code}\n", f" failed to import: {error} (*:*)"


def replacing(name: str, line: str) -> Case:
    more = f"import torch\noriginal = torch.softmax\ndef own(*values, **options):\n    return original(*values)\n{line}"
    return "torch", name, hook("{'mine': Mine}", more), f" replaces {name}; {TORCH}"


def entry(kind: str, name: str, body: str, message: str, family: str = "positional") -> Case:
    base = family.capitalize()
    source = hook("{'mine': Own}", f"class Own({base}):\n    {body}", family)
    return kind, name, source, f": {family} 'mine' is invalid: {message} (*:*)"


def returned(name: str, value: str, got: str) -> Case:
    message = f": register_positionals returned {got} for 'mine'; expected a subclass of headtohead.plugin.Positional"
    return "entry", name, hook(f"{{'mine': {value}}}"), message


CASES = (
    returned("number", "3", "an object of type int"),
    returned("foreign class", "str", "str"),
    *map(named, ("a/b", "..", "", "x\x1b[31m", "a--b", "x" * 61)),
    raising("exit", "import sys; sys.exit(0)", "SystemExit: 0"),
    raising("exit", "raise KeyboardInterrupt", "KeyboardInterrupt:"),
    ("import", "syntax", "def (:\n", " failed to import: SyntaxError: * (*, line 1)*"),
    raising("import", "1 / 0", "ZeroDivisionError: division by zero"),
    ("import", "nul", "x = 1\0\n", " failed to import: *null bytes*"),
    replacing("torch.softmax", "torch.softmax = own"),
    replacing("torch.Tensor.backward", "torch.Tensor.backward = own"),
    replacing("torch.bmm", "del torch.bmm"),
    replacing("torch.optim.adam.adam", "import sys\nsys.modules['torch.optim.adam'].adam = own"),
    (
        "torch",
        "in the hook",
        f"{HEAD}\nimport torch\n@hookimpl\ndef register_positionals():\n    torch.exp = torch.log\n    return {{}}\n",
        f" replaces torch.exp; {TORCH}",
    ),
    (
        "hook",
        "list",
        hook("[Mine]"),
        ": register_positionals returned list; expected a mapping from name to class",
    ),
    (
        "hook",
        "raises",
        hook("1 / 0"),
        ": register_positionals raised ZeroDivisionError: division by zero (*:*)",
    ),
    (
        "hook",
        "forgotten",
        f"{HEAD}\ndef register_positionals():\n    return {{'mine': Mine}}\n",
        ": it implements no hook; decorate a function such as register_positionals with @headtohead.plugin.hookimpl",
    ),
    (
        "hook",
        "misspelt",
        hook("{}").replace("positionals", "positions"),
        ": unknown hook 'register_positions'; did you mean 'register_positionals'?",
    ),
    (
        "duplicate",
        "built-in",
        hook("{'alibi': Mine}"),
        "two plugins register positional 'alibi': headtohead_plugins.positional.alibi (headtohead) and *; "
        "rename one of them",
    ),
    entry(
        "options",
        "no class",
        "Options = 3",
        "TypeError: Options is 3; expected a subclass of headtohead.plugin.*",
    ),
    entry(
        "options",
        "role defaults",
        "role_defaults = {'x': 3}",
        "TypeError: role_defaults is {'x': 3}; expected*",
    ),
    entry(
        "options",
        "unknown property",
        "properties = frozenset({'relatve'})",
        "TypeError: properties has the unknown name 'relatve'; did you mean 'relative'?*",
    ),
    entry(
        "options",
        "splits",
        "splits = ()",
        "TypeError: splits is (); expected at least one name",
        "dataset",
    ),
    (
        "options",
        "required",
        hook(
            "{'mine': Own}",
            "class Needs(Options):\n    a: int\nclass Own(Positional):\n    Options = Needs",
        ),
        ": positional 'mine' is invalid: ValidationError: 1 validation error for Needs a Field required *",
    ),
)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install the distribution ``outside`` with an entry point, as an installer does."""
    site = tmp_path / "site"
    before = set(sys.modules)
    plugin_commands.cache_clear()

    def install(source: str, entry_points: str = "[headtohead]\nmine = outside_plugin\n") -> None:
        folder = site / "outside-1.2.dist-info"
        folder.mkdir(parents=True)
        (site / "outside_plugin.py").write_text(source, encoding="utf-8")
        (folder / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: outside\nVersion: 1.2\n", encoding="utf-8"
        )
        (folder / "entry_points.txt").write_text(entry_points, encoding="utf-8")
        monkeypatch.syspath_prepend(site)
        importlib.invalidate_caches()

    yield install
    plugin_commands.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("outside"):
            del sys.modules[name]


@kind_table("kind, source, message", CASES)
def test_a_faulty_plugin_is_named_in_one_line(kind, source, message, tmp_path, refusal, install):
    own = torch.softmax, torch.nn.functional.softmax, torch.exp, torch.bmm, torch.Tensor.softmax
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    where = "" if kind == "duplicate" else "plugin 'mine.py' (file)"
    line = refusal("plugins", "--plugin", "mine.py")
    assert matches(line, where + message), line
    assert kind != "duplicate" or "mine.py (file)" in line

    install(source)
    where = "" if kind == "duplicate" else "plugin 'outside_plugin' (outside)"
    line = refusal("plugins")
    assert matches(line, where + message), line
    assert kind != "duplicate" or "outside_plugin (outside)" in line
    now = torch.softmax, torch.nn.functional.softmax, torch.exp, torch.bmm, torch.Tensor.softmax
    assert all(new is old for new, old in zip(now, own, strict=True))


COMMANDS = """
import click

def register_commands():
    return {"NAME": ("outside_plugin:greet", "Print a greeting.")}

@click.command()
def greet():
    click.echo("good morning")
"""


COMMAND = "[headtohead.commands]\nmine = outside_plugin\n"


def test_a_command_of_an_installed_package_is_listed_and_runs(tmp_path, h2h_here, install):
    install(COMMANDS.replace("NAME", "greet"), COMMAND)
    assert re.search(
        r"^  greet +Print a greeting\.$", h2h_here(tmp_path, "--help").stdout, re.MULTILINE
    )
    done = h2h_here(tmp_path, "greet")
    assert (done.returncode, done.stdout) == (0, "good morning\n")


@pytest.mark.parametrize(
    ("source", "entry_point", "message"),
    [
        (
            "",
            "outside_nowhere",
            "plugin 'outside_nowhere' (outside) failed to import: ModuleNotFoundError: *",
        ),
        (
            "",
            "outside_plugin:Missing",
            "plugin 'outside_plugin:Missing' (outside) failed to import: AttributeError: *",
        ),
        ("", "not a module!", "plugin 'not a module!' (outside) failed to import: *"),
        (
            "NUMBER = 3",
            "outside_plugin:NUMBER",
            "plugin 'outside_plugin:NUMBER' (outside): it implements no hook; *",
        ),
        ("", None, "the commands of 'installed packages' cannot be loaded: *"),
        (
            COMMANDS.replace("NAME", "run"),
            COMMAND,
            "two plugins register the command 'run'; uninstall one of them",
        ),
        (
            COMMANDS.replace("NAME", "trace"),
            COMMAND,
            "two plugins register the command 'trace'; uninstall one of them",
        ),
        (
            "1 / 0",
            COMMAND,
            "the commands of 'outside_plugin' cannot be loaded: ZeroDivisionError: division by zero*",
        ),
        (
            "",
            COMMAND,
            "the commands of 'outside_plugin' cannot be loaded: AttributeError: *'register_commands'*",
        ),
    ],
)
def test_an_entry_point_that_cannot_be_loaded_is_named(
    source, entry_point, message, refusal, install
):
    named = f"[headtohead]\nmine = {entry_point}\n" if entry_point else "[headtohead]\nmine\n"
    install(source, COMMAND if entry_point is COMMAND else named)
    line = refusal("plugins")
    assert matches(line, message), line
    assert entry_point or refused(load_registry).startswith(
        "cannot read the entry points of installed packages: "
    )


def test_an_installed_plugin_has_its_distribution_also_if_its_file_is_named(
    tmp_path, h2h_here, install
):
    install(hook("{'mine': Mine}"))
    for more in ((), ("--plugin", str(tmp_path / "site" / "outside_plugin.py"))):
        listed = h2h_here(tmp_path, "plugins", "mine", *more)
        assert (listed.returncode, listed.stderr) == (0, "")
        assert "outside_plugin (outside 1.2)" in listed.stdout


def test_a_path_that_is_no_plugin_file_is_refused_at_once(tmp_path, refusal):
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "latin.py").write_bytes("x = 'caf\xe9'\n".encode("latin-1"))
    expected = {
        "fifo.py": "plugin file 'fifo.py' is not a regular file*",
        "folder.py": "plugin folder 'folder.py' has no plugin file; name a Python file, or a folder of them",
        "latin.py": "plugin 'latin.py' (file) failed to import: SyntaxError: (unicode error) 'utf-8' codec*",
    }
    for name, message in expected.items():
        line = refusal("plugins", "--plugin", name)
        assert matches(line, message), line
