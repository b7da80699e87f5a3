from pathlib import Path

import pytest

from headtohead.plugins import registry
from made import plugin_file


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


def test_a_plugin_file_is_listed_for_this_call(h2h):
    options = (
        "class Mine(Options):\n    reach: int = Field(4, ge=1, description='how far it sees')\n"
    )
    imports = "from pydantic import Field\nfrom headtohead.plugin import Options\n"
    Path("mine.py").write_text(plugin_file("Options = Mine", name="mine", before=imports + options))
    code, output = h2h("plugins", "--plugin", "mine.py", "mine")
    assert code == 0
    assert "from: mine.py (file -)" in output
    assert "how far it sees" in output


@pytest.mark.parametrize(
    ("arguments", "named"), [(["rotery"], "'rotary'"), (["--plugin", "nope.py"], "'nope.py'")]
)
def test_an_unknown_plugin_is_named(h2h, arguments, named):
    code, output = h2h("plugins", *arguments)
    assert (code, output.count("\n")) == (2, 1)
    assert named in output
