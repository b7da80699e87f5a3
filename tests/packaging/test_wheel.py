"""Both wheels, their files and installed copies without the repository; the pins of all packages."""

import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.]+)")
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")
VENV_BRINGS = {"pip", "setuptools"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
JUDGE_ROOT = ROOT / "harness" / "judge"
JUDGE = tomllib.loads((JUDGE_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def call(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(source: Path, folder: Path) -> Path:
    """Return the wheel of a source tree, built in a folder."""
    call("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), cwd=source)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def judge_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(JUDGE_ROOT, tmp_path_factory.mktemp("judge"))


def packed_files(path: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_of_the_judge_has_its_package_alone(judge_wheel: Path) -> None:
    wanted = {path.relative_to(JUDGE_ROOT).as_posix() for path in JUDGE_ROOT.rglob("*.py")}
    assert packed_files(judge_wheel) == wanted | {
        "headtohead_judge/SKILL.md",
        "headtohead_judge/noise.csv",
        "headtohead_judge/py.typed",
    }
    assert judge_wheel.name == f"headtohead_judge-{JUDGE['version']}-py3-none-any.whl"


@pytest.mark.slow
def test_the_readme_of_the_judge_is_the_page_of_its_wheel_and_renders_without_the_repository(
    judge_wheel: Path,
) -> None:
    with zipfile.ZipFile(judge_wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        page = email.message_from_bytes(archive.read(name))
    assert page["Description-Content-Type"] == "text/markdown"
    text = (JUDGE_ROOT / "README.md").read_text(encoding="utf-8")
    assert page.get_payload(decode=True).decode() == text
    html = MarkdownIt("commonmark").render(text)
    assert "<h1>headtohead-judge</h1>" in html
    assert re.findall(r'<code class="language-(\w+)">', html) == [
        "sh",
        "csv",
        "text",
        "python",
        "sh",
    ]
    assert "```" not in html
    # A relative link or picture would be broken on the page of a package.
    assert all(link.startswith("https://") for link in re.findall(r'(?:href|src)="([^"]*)"', html))


@pytest.mark.slow
def test_the_wheel_has_every_file_of_both_source_roots_and_no_other_package(wheel: Path) -> None:
    packed = packed_files(wheel)
    wanted = {
        path.relative_to(root).as_posix()
        for root in (ROOT / "harness", ROOT / "plugins")
        for path in root.rglob("*")
        if path.is_file()
        and not path.is_relative_to(JUDGE_ROOT)
        and path.suffix in (".py", ".j2", ".css", ".js", ".yaml", ".txt", ".md", ".typed")
    }
    assert any(name.endswith(".j2") for name in wanted)
    assert packed >= wanted
    assert {name.split("/")[0] for name in packed} == {
        "headtohead",
        "headtohead_mlflow",
        "headtohead_notebooks",
        "headtohead_plugins",
    }


def test_all_files_have_the_same_version() -> None:
    version = PROJECT["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert metadata.version("headtohead") == version
    assert JUDGE["version"] == metadata.version("headtohead-judge") == version
    assert f"headtohead-judge=={version}" in PROJECT["dependencies"]


@pytest.mark.slow
def test_an_installed_copy_has_its_own_plugins_and_the_experiments_of_the_notebooks(
    wheel: Path, judge_wheel: Path, tmp_path: Path
) -> None:
    install = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index")
    installed = ("--no-deps", "--target", str(tmp_path), str(wheel), str(judge_wheel))
    call(*install, *installed, cwd=tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import headtohead, headtohead_judge, headtohead_plugins\n"
        "from headtohead.plugins.registry import load_registry\n"
        "from headtohead_notebooks.page import EXPERIMENTS, editions\n"
        "from headtohead_notebooks.page.editions import experiment_text\n"
        "print(headtohead.__file__, headtohead_judge.__file__, headtohead_plugins.__file__, sep='\\n')\n"
        "print(*sorted(entry.name for entry in load_registry().all() if entry.family == 'launcher'))\n"
        "assert len(editions(quick=True)) >= 6\n"
        "print(*(edition.name for edition in EXPERIMENTS if experiment_text(edition.name)))\n"
    )
    *files, launchers, names = call("-c", code, str(tmp_path), cwd=tmp_path).splitlines()
    assert [Path(file).parents[1] for file in files] == [tmp_path] * 3
    assert launchers.split() == ["inline", "local", "ray", "slurm"]
    (tmp_path / "scores.csv").write_text("variant,seed,loss\na,1,3\na,2,3.1\nb,1,2\nb,2,2.2\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    answers = []
    for script in (["headtohead-judge"], ["h2h", "judge"]):
        command = [str(tmp_path / "bin" / script[0]), *script[1:], "scores.csv", "--baseline", "a"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)
    assert answers[0] == answers[1]
    folder = tmp_path / "headtohead_notebooks" / "page" / "experiments"
    for name in names.split():
        assert (folder / f"{name}.yaml").read_bytes() == (
            ROOT / "experiments" / f"{name}.yaml"
        ).read_bytes()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(matches), "every line is name==version, without a local label"
    return {normal(match["name"]): match["version"] for match in matches if match}


def needed() -> set[str]:
    """Return all installed dependencies of headtohead and of its developers' extra.

    The judge is in the repository, so only its dependencies are pinned. CUDA builds of torch pin triton and the
    libraries of CUDA themselves.
    """
    found: set[str] = set()
    installed = {normal(package.metadata["Name"]) for package in metadata.distributions()}
    waiting = [("headtohead", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])]
    while waiting:
        name, requirements = waiting.pop()
        for text in requirements:
            match = REQUIREMENT.match(text)
            assert match
            required = normal(match.group(1))
            wanted = "extra ==" not in text and not (
                name == "torch" and "==" in text.partition(";")[0]
            )
            if wanted and required not in found and required in installed:
                found.add(required)
                waiting.append((required, metadata.requires(required) or []))
    return found - {"headtohead-judge"}


def test_every_dependency_is_pinned() -> None:
    required = needed()
    assert {"torch", "mlflow", "numpy", "pytest", "markupsafe"} <= required
    assert required - set(pins()) - VENV_BRINGS == set()


def test_the_cpu_build_in_the_readme_is_the_tested_torch() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"`torch=={pins()['torch']}`" in readme


def test_no_installation_file_names_a_package_index() -> None:
    for name in ("constraints.txt", "pyproject.toml", "Makefile", ".ci/run", ".ci/oldest.py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|--(extra-)?index-url|find-links", text), name
