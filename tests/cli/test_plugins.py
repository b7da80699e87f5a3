import resource
import subprocess
import sys
import textwrap

import pytest
from click.testing import CliRunner

from headtohead.cli import main
from headtohead.plugins import registry


@pytest.fixture
def h2h(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_current", None)

    def h2h(*arguments):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.output

    return h2h


@pytest.fixture
def plugin(tmp_path):
    """Write a plugin file."""

    def plugin(text, name="mine.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return name

    return plugin


GOOD = '''
    """A table of my own."""
    from pydantic import Field
    from headtohead.plugin import Options, Positional, hookimpl


    class MineOptions(Options):
        reach: int = Field(4, ge=1, description="how far it sees")


    class Mine(Positional):
        """Positions of my own."""

        Options = MineOptions


    @hookimpl
    def register_positionals():
        return {"mine": Mine}
'''


def test_every_entry_is_listed_with_its_origin(h2h):
    code, output = h2h("plugins")
    assert code == 0
    rows = output.splitlines()[1:]
    assert len(rows) == len(list(registry.current().all()))
    for found, row in zip(registry.current().all(), rows, strict=True):
        assert row.split()[:2] == [found.family, found.name]
        assert row.endswith(f"{found.module} ({found.distribution} {found.version})")
        assert found.entry.summary()
        assert found.entry.summary() in row


def test_one_entry_is_described_with_its_options(h2h):
    code, output = h2h("plugins", "learned")
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert code == 0
    assert lines[0] == "learned (positional)"
    assert any("Gehring" in line for line in lines)
    assert "default in cross: 'none'" in lines
    assert (
        "max_length whole number ≥ 1 and ≤ 100,000 128 "
        "rows of the table: tokens of the longest sentence, with boundary tokens" in lines
    )


def test_a_name_in_two_families_describes_both_entries(h2h):
    _, output = h2h("plugins", "none")
    assert "none (positional)" in output
    assert "none (masking)" in output
    _, output = h2h("plugins", "masking/none")
    assert "none (positional)" not in output


def test_an_unknown_plugin_suggests_the_nearest(h2h):
    assert h2h("plugins", "rotery") == (2, "h2h: unknown plugin 'rotery'; did you mean 'rotary'?\n")


def test_a_syntax_error_names_only_the_plugin_file(h2h, plugin):
    _, output = h2h("plugins", "--plugin", plugin("x = 1\ndef broken(:\n"))
    assert output.endswith("SyntaxError: invalid syntax (mine.py, line 2)\n")


def test_a_plugin_file_is_listed_for_this_call(h2h, plugin):
    code, output = h2h("plugins", "--plugin", plugin(GOOD), "mine")
    assert code == 0
    assert "from: mine.py (file -)" in output
    assert "how far it sees" in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "plugin 'mine.py' (file) failed to import: ZeroDivisionError: division by zero"),
        ("def broken(:", "plugin 'mine.py' (file) failed to import: SyntaxError: "),
        (
            GOOD.replace('"mine"', '"rotary"'),
            "two plugins register positional 'rotary': headtohead_plugins.positional.rotary "
            "(headtohead) and mine.py (file); rename one of them",
        ),
        (
            GOOD.replace("register_positionals", "register_positional"),
            "plugin 'mine.py' (file): unknown hook 'register_positional'; did you mean 'register_positionals'?",
        ),
        (
            GOOD.replace('return {"mine": Mine}', "return Mine"),
            "plugin 'mine.py' (file): register_positionals returned type; expected a mapping from name to class",
        ),
        (
            GOOD.replace('return {"mine": Mine}', "raise ValueError('no')"),
            "plugin 'mine.py' (file): register_positionals raised ValueError: no",
        ),
    ],
)
def test_the_error_of_a_broken_plugin_names_the_plugin(h2h, plugin, text, message):
    code, output = h2h("plugins", "--plugin", plugin(text))
    assert code == 2
    assert output.startswith(f"h2h: {message}")
    assert len(output.splitlines()) == 1


def test_a_missing_plugin_file_is_named(h2h):
    assert h2h("plugins", "--plugin", "nope.py") == (2, "h2h: plugin file 'nope.py' does not exist\n")


@pytest.mark.slow
def test_the_list_imports_neither_mlflow_nor_pandas():
    code = (
        "import sys\n"
        "from headtohead.cli import main\n"
        "main(['plugins'], standalone_mode=False)\n"
        "heavy = {'mlflow', 'pandas', 'matplotlib', 'sacrebleu', 'scipy'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_list_takes_little_longer_than_importing_torch():
    """Two seconds on an idle machine; here, processor time relative to importing torch."""

    def seconds(code):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    listing = "from headtohead.cli import main; main(['plugins'])"
    assert seconds(listing) < 1.5 * seconds("import torch") + 0.3
