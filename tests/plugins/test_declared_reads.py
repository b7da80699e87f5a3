"""What plugins read without declaring it: files and environment variables, and what does not count."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from headtohead.errors import HeadToHeadError
from headtohead.plugins import watched_reads
from headtohead.plugins.reads import declared_reads
from headtohead.plugins.registry import Registry, use_files
from headtohead.plugins.watched_reads import WatchedReads, only_declared_reads
from made import case_table, plugin_file

BODY = """
{reads}

def bias(self, query_positions, key_positions, role, layer):
    return -(query_positions[:, :, None] - key_positions[:, None, :]).abs()[:, None, None].float()
"""

pytestmark = pytest.mark.usefixtures("own_registry")

HERE = "from pathlib import Path\nHERE = Path(__file__).parent\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files that plugins read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.json").write_text("0.5")
    (tmp_path / "more").mkdir()
    for n in range(8):
        (tmp_path / "more" / f"{n}.txt").write_text(str(n))
    np.save(tmp_path / "scale.npy", np.ones(2))
    torch.save(torch.ones(2), tmp_path / "scale.pt")
    (tmp_path / "own_helper.py").write_text("VALUE = 1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "own_part.py").write_text("VALUE = 1\n")
    (tmp_path / "own_named.py").write_text("VALUE = 1\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "own_scale.py").write_text("VALUE = 1\n")
    (tmp_path / "own_reader.py").write_text(HERE + "VALUE = (HERE / 'scale.json').read_text()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OWN_SCALE", "2")
    return tmp_path


def load(code: str, reads: str = "") -> Registry:
    """Load a plugin file that executes ``code`` when it is imported."""
    Path("own.py").write_text(
        plugin_file(BODY.format(reads=reads), before=f"import os\n{HERE}{code}")
    )
    return use_files([Path("own.py")])


UNDECLARED = {
    "Path(HERE / 'scale.json').read_text()": ("'scale.json'", 'reads = ("scale.json",)'),
    "import own_reader": ("'scale.json'", 'reads = ("scale.json",)'),
    "[path.read_text() for path in sorted((HERE / 'more').iterdir())]": (
        "'more/0.txt' and 7 more",
        '("more",)',
    ),
    "os.getenv('OWN_SCALE')": ("the environment variable $OWN_SCALE", 'reads = ("$OWN_SCALE",)'),
    "torch.load('scale.pt')": ("'scale.pt'", 'reads = ("scale.pt",)'),
    "import threading\nt = threading.Thread(target=lambda: Path('scale.json').read_text())\nt.start()\nt.join()": (
        "'scale.json'",
        'reads = ("scale.json",)',
    ),
    "os.close(os.open('scale.json', os.O_RDONLY))": ("'scale.json'", 'reads = ("scale.json",)'),
    "import numpy\nnumpy.load('scale.npy')": ("'scale.npy'", 'reads = ("scale.npy",)'),
    "Path('own.py').read_text(); Path('scale.json').read_text(); os.environ['OWN_SCALE']": (
        "'scale.json' and 1 more",
        'reads = ("scale.json", "$OWN_SCALE")',
    ),
    "os.environ.get('OWN_UNSET', '1')": (
        "the environment variable $OWN_UNSET",
        'reads = ("$OWN_UNSET",)',
    ),
    "open('scale.json', 'r+').close()": ("'scale.json'", 'reads = ("scale.json",)'),
    "import importlib.util\nimportlib.util.spec_from_file_location('x', 'own_helper.py').loader.get_code('x')": (
        "'own_helper.py'",
        'reads = ("own_helper.py",)',
    ),
    "import importlib\nimportlib.import_module('own_named')": (
        "'own_named.py'",
        'reads = ("own_named.py",)',
    ),
    "__import__('own_named')": ("'own_named.py'", 'reads = ("own_named.py",)'),
    "import sys\nsys.path.insert(0, str(HERE / 'parts'))\nimport own_part": (
        "'parts/own_part.py'",
        'reads = ("parts/own_part.py",)',
    ),
}


@case_table("code", UNDECLARED, default=6)
def test_an_undeclared_read_is_an_error_with_the_declaration_to_add(
    folder: Path, code: str
) -> None:
    what, declaration = UNDECLARED[code]
    for name in ("own_named", "own_part", "own_reader"):
        sys.modules.pop(name, None)  # of another case
    with pytest.raises(HeadToHeadError) as raised:
        load(code)
    line = str(raised.value)
    assert line.startswith(f"own.py: Own reads {what} without declaring it")
    assert line.endswith(f"{declaration}")
    load(code, reads=declaration if declaration.startswith("reads") else f"reads = {declaration}")


NOT_COUNTED = (
    "import own_helper",
    "from own_package.own_scale import VALUE",
    "import tempfile\nwith tempfile.TemporaryDirectory() as own:\n    Path(own, 'x').write_text('1')\n"
    "    Path(own, 'x').rename(Path(own, 'y'))\n    Path(own, 'y').read_text()",
    "Path(os.__file__).read_text()\nPath(torch.__file__).read_text()\nPath('/proc/self/status').read_text()",
    "try:\n    open('absent.json')\nexcept FileNotFoundError:\n    pass",
    "os.environ.setdefault('OWN_SET', '1')\nos.environ.copy()\nlist(os.environ.items())\nPath.home()",
    "Path('new.txt').write_text('1')\nPath('new.txt').read_text()",
    "import inspect, own_helper\ninspect.getsource(own_helper)",
    "open('scale.json', 'a').close()",
)


@case_table("code", NOT_COUNTED, default=5)
def test_imports_data_of_libraries_and_own_files_do_not_count(folder: Path, code: str) -> None:
    load(code)
    with pytest.raises(HeadToHeadError, match="without declaring it"):
        load(f"{code}\nPath('scale.json').read_text()")


@pytest.mark.slow
def test_settings_that_a_library_reads_at_its_import_do_not_count(folder: Path) -> None:
    """Matplotlib reads ``matplotlibrc`` of the working directory when it is imported."""
    (folder / "matplotlibrc").write_text("backend: agg\n")
    command = [sys.executable, "-m", "headtohead.cli", "plugins", "own", "--plugin", "own.py"]
    for code, exit_code in {
        "import matplotlib": 0,
        "import matplotlib\nmatplotlib.rc_file('matplotlibrc')": 2,
    }.items():
        Path("own.py").write_text(plugin_file(BODY.format(reads=""), before=code))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == exit_code, done.stderr


def test_names_are_relative_to_the_file_of_the_class_and_options_have_paths(folder: Path) -> None:
    options = "from pydantic import Field\nfrom headtohead.plugin import Options\n\nclass Own_Options(Options):\n"
    options += '    table: str = Field("more/1.txt", description="a table")\n'
    (folder / "inner").mkdir()
    file = folder / "inner" / "own.py"
    reads = 'Options = Own_Options\nreads = ("../{table}", "../scale.json", "$OWN_SCALE")'
    file.write_text(
        plugin_file(BODY.format(reads=reads.replace("../{table}", "{table}")), before=options)
    )
    entry = use_files([file]).find("positional", "own").entry
    (folder / "inner" / "table.txt").write_text("1")
    found = {read.name: read for read in declared_reads(entry, entry.Options(table="table.txt"))}
    assert list(found) == ["table.txt", "../scale.json", "$OWN_SCALE"]
    assert found["../scale.json"].path == folder / "inner" / ".." / "scale.json"
    with pytest.raises(HeadToHeadError) as missing:
        declared_reads(entry, entry.Options(table="absent.txt"))
    assert "declares that it reads 'absent.txt', but 'inner/absent.txt' does not exist" in str(
        missing.value
    )
    undeclared = "reads = ()"
    file.write_text(
        plugin_file(BODY.format(reads=f"Options = Own_Options\n{undeclared}"), before=options)
    )
    entry = use_files([file]).find("positional", "own").entry
    with (
        pytest.raises(HeadToHeadError) as raised,
        only_declared_reads(entry, entry.Options(table="table.txt")),
    ):
        exec(
            compile("open('inner/table.txt').close()", str(file), "exec"),
            {"__name__": "own", "__file__": str(file)},
        )
    assert str(raised.value).endswith('reads = ("{table}",)')


def test_a_change_of_a_file_a_folder_or_a_variable_changes_the_hash(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = load("", 'reads = ("scale.json", "more", "$OWN_SCALE")').find("positional", "own").entry

    def hashes() -> dict[str, str]:
        return {read.name: read.sha256 for read in declared_reads(entry, entry.Options())}

    before = hashes()
    (folder / "scale.json").write_text("0.6")
    (folder / "more" / "1.txt").rename(folder / "more" / "9.txt")
    monkeypatch.setenv("OWN_SCALE", "3")
    after = hashes()
    assert all(before[name] != after[name] for name in before)
    monkeypatch.setenv("OWN_SCALE", "")
    empty = hashes()
    monkeypatch.delenv("OWN_SCALE")
    assert len({own["$OWN_SCALE"] for own in (before, after, empty, hashes())}) == 4


WRONG = {
    'reads = "scale.json"': "reads is 'scale.json'; expected a tuple of names such as (\"scale.json\",)",
    "reads = (1,)": "reads is (1,); expected a tuple of names",
    'reads = ("{tabel}",)': "reads has '{tabel}', but Options has no 'tabel'",
}


@pytest.mark.parametrize("reads", WRONG)
def test_an_invalid_declaration_is_one_line(folder: Path, reads: str) -> None:
    with pytest.raises(HeadToHeadError) as raised:
        load("", reads)
    assert WRONG[reads] in str(raised.value)


def test_a_path_of_a_component_is_declared_by_reads_because_the_run_hash_lacks_marked_paths(
    folder: Path,
) -> None:
    code = (
        "from typing import Annotated\nfrom headtohead.plugin import FilePath, Options\n\n"
        'class Marked(Options):\n    table: Annotated[str, FilePath()] = "scale.json"\n'
    )
    with pytest.raises(HeadToHeadError) as raised:
        load(code, "Options = Marked")
    assert 'is for datasets; remove the mark, and add to the class: reads = ("{table}",)' in str(
        raised.value
    )


def test_reads_of_this_process_beside_the_block_do_not_count(folder: Path) -> None:
    began, opened = threading.Event(), threading.Event()

    def beside() -> None:
        began.wait()
        json.loads((folder / "scale.json").read_text())
        opened.set()

    thread = threading.Thread(target=beside)
    thread.start()
    with WatchedReads() as watch:
        began.set()
        opened.wait()
    thread.join()
    assert not watch.files
    assert type(os.environ) is os._Environ
    assert not watched_reads._active
