"""The judge works where only its dependencies are installed: without headtohead, torch and pydantic."""

import json
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")
BLOCKED = (
    "headtohead",
    "torch",
    "pydantic",
    "pydantic_core",
    "mlflow",
    "rich",
    "filelock",
    "pyarrow",
)
HOOK = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            raise ImportError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Blocked())
"""
SCRIPT = f"{HOOK}\nfrom headtohead_judge.__main__ import entry\nentry()"
SCORES = "variant,seed,accuracy\n" + "".join(
    f"{variant},{seed},{score}\n"
    for variant, scores in (
        ("base", (0.80, 0.82, 0.81, 0.79, 0.83, 0.80)),
        ("new", (0.84, 0.85, 0.86, 0.83, 0.86, 0.85)),
    )
    for seed, score in enumerate(scores)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table of scores."""
    (tmp_path / "scores.csv").write_text(SCORES)
    return tmp_path


def call(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def judged(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return call(folder, sys.executable, "-c", SCRIPT, *arguments)


def test_a_table_has_a_verdict_and_a_ledger_a_decision(folder: Path) -> None:
    done = judged(folder, "scores.csv", "--baseline", "base", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["direction"] for row in json.loads(done.stdout)["contrasts"]] == ["better"]
    arguments = ("--baseline", "base", "--ledger", "ledger.jsonl", "--answer", "answer.json")
    assert judged(folder, "scores.csv", *arguments).returncode == 0
    assert json.loads((folder / "answer.json").read_text())["decision"]["kept"] is True
    again = judged(folder, "scores.csv", *arguments)
    assert "ledger.jsonl has this decision already" in again.stderr
    assert (
        "incumbent: new, with scores of 6 seeds"
        in judged(folder, "--ledger", "ledger.jsonl", "--status").stdout
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.csv", "--baseline", "base"), "headtohead-judge: no file missing.csv\n"),
        (("scores.csv", "--baselin"), "headtohead-judge: No such option"),
    ],
)
def test_an_error_is_one_line_with_exit_code_2(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = judged(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_help_imports_no_pandas_and_no_scipy() -> None:
    code = (
        "import sys; from headtohead_judge.command import command\n"
        "command.main(['--help'], standalone_mode=False)\n"
        "print(*sys.modules)"
    )
    modules = call(ROOT, sys.executable, "-c", code).stdout.splitlines()[-1].split()
    assert "headtohead_judge.command" in modules
    assert {"numpy", "pandas", "scipy", "headtohead"}.isdisjoint(modules)


def test_the_functions_are_imported_without_torch_and_mlflow() -> None:
    code = (
        "import sys, headtohead_judge\n"
        "print(*sys.modules)\n"
        "headtohead_judge.judge, headtohead_judge.same\n"
        "print(*sys.modules)"
    )
    package, functions = call(ROOT, sys.executable, "-c", code).stdout.splitlines()
    assert {"numpy", "pandas", "scipy"}.isdisjoint(package.split())
    assert "pandas" in functions.split()
    not_needed = {"headtohead", "torch", "mlflow", "pydantic", "rich", "scipy.stats"}
    assert not_needed.isdisjoint(functions.split())


def installed_dependencies(*names: str) -> set[str]:
    """Return the names of installed distributions and of all that they require."""
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another platform
            continue
        found.add(name)
        for requirement in requirements:
            match = REQUIREMENT.match(requirement)
            if match and "extra ==" not in requirement:
                waiting.append(match[1])
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel of the judge, its dependencies and pytest.

    The dependencies are links to the installed ones; pip refuses a missing dependency.
    """
    folder = tmp_path_factory.mktemp("alone")
    build = ("build", "--wheel", "--no-isolation", "--outdir", str(folder))
    assert call(ROOT / "harness" / "judge", sys.executable, "-m", *build).returncode == 0
    (wheel,) = folder.glob("*.whl")
    assert call(folder, sys.executable, "-m", "venv", "--without-pip", "venv").returncode == 0
    (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
    installed = Path(sysconfig.get_paths()["purelib"])
    for name in installed_dependencies("numpy", "scipy", "pandas", "click", "pytest"):
        for top in {Path(file).parts[0] for file in metadata.files(name) or ()}:
            if top != ".." and not (packages / top).exists():
                (packages / top).symlink_to(installed / top)
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    done = call(folder, *pip, "install", "--no-index", "--quiet", str(wheel))
    assert done.returncode == 0, done.stderr
    assert call(folder, str(python), "-c", "import torch").returncode == 1
    return python


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_with_its_dependencies_alone(
    folder: Path, alone: Path
) -> None:
    script = str(alone.with_name("headtohead-judge"))
    done = call(folder, script, "scores.csv", "--baseline", "base")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "exit code 0: every variant is better"
    (folder / "scores.parquet").write_bytes(b"PAR1")
    done = call(folder, script, "scores.parquet", "--baseline", "base")
    assert done.stderr == (
        "headtohead-judge: Parquet files need pyarrow: run pip install pyarrow\n"
    )
    assert done.returncode == 2
    code = (
        "import pandas, headtohead_judge\n"
        "judged = headtohead_judge.judge(pandas.read_csv('scores.csv'), baseline='base')\n"
        "print(judged.frame()['verdict'].tolist())"
    )
    assert call(folder, str(alone), "-c", code).stdout == "['better']\n"


@pytest.mark.slow
def test_the_tests_of_the_judge_pass_without_headtohead(alone: Path) -> None:
    options = (
        "-c",
        "/dev/null",
        "--rootdir=.",
        "--confcutdir=tests/judge",
        "-p",
        "no:cacheprovider",
    )
    arguments = ("--import-mode=importlib", "-q", "-m", "not slow", "tests/judge")
    done = call(ROOT, str(alone), "-m", "pytest", *options, *arguments)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 300
