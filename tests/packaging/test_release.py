"""The distributions, the package page, and the steps that release a version."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from trove_classifiers import classifiers

ROOT = Path(__file__).parents[2]
PROJECTS = {
    name: tomllib.loads((ROOT / name).read_text(encoding="utf-8"))
    for name in ("pyproject.toml", "harness/judge/pyproject.toml")
}
TESTED = ["3.11", "3.12", "3.13"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def loaded(path: str) -> ModuleType:
    """Return the module of a file that is in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copied(folder: Path) -> Path:
    """Copy the files of the repository, without those that git ignores, into a new folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith(("tests/", "reports/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build_environment(**variables: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PYTHON": sys.executable, "PATH": path} | variables


def build(source: Path, folder: Path) -> dict[str, bytes]:
    """Return the distributions that ``.ci/build`` makes of a source tree, by their names."""
    command = [source / ".ci" / "build", folder]
    environment = build_environment(SOURCE_DATE_EPOCH="1700000000")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both sdists and both wheels."""
    source = copied(tmp_path_factory.mktemp("source"))
    build(source, source / "dist")
    return source / "dist"


@pytest.mark.slow
def test_equal_sources_at_other_times_and_places_give_equal_distributions(
    distributions: Path, tmp_path: Path
) -> None:
    source = copied(tmp_path / "elsewhere")
    for path in source.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
    first = {path.name: path.read_bytes() for path in distributions.iterdir()}
    second = build(source, tmp_path / "dist")
    assert [name.rpartition("-0.1.0")[2] for name in first].count(".tar.gz") == 2
    assert len(first) == 4
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.slow
def test_every_package_of_both_wheels_is_typed(distributions: Path) -> None:
    packages = set()
    for wheel in distributions.glob("*.whl"):
        names = zipfile.ZipFile(wheel).namelist()
        top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
        assert {f"{package}/py.typed" for package in top} <= set(names)
        packages |= top
    assert len(packages) == 5


@pytest.mark.slow
def test_the_wheel_has_the_package_page_and_every_classifier(distributions: Path) -> None:
    (wheel,) = distributions.glob("headtohead-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        head, _, page = archive.read(name).decode().partition("\n\n")
    addresses = PROJECTS["pyproject.toml"]["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    expected = loaded("hatch_build.py").with_absolute_links(
        README, addresses["repository"], PROJECTS["pyproject.toml"]["project"]["version"]
    )
    assert page.strip() == expected.strip()
    assert "Description-Content-Type: text/markdown" in head
    for classifier in PROJECTS["pyproject.toml"]["project"]["classifiers"]:
        assert f"\nClassifier: {classifier}" in head


@pytest.mark.parametrize("name", PROJECTS)
def test_classifiers_exist_and_name_the_tested_pythons(name: str) -> None:
    project = PROJECTS[name]["project"]
    assert set(project["classifiers"]) <= classifiers
    prefix = "Programming Language :: Python :: "
    versions = [text.removeprefix(prefix) for text in project["classifiers"] if prefix in text]
    assert versions == ["3", *TESTED]
    assert "Typing :: Typed" in project["classifiers"]


def page_links(page: str) -> list[str]:
    return re.findall(
        r'(?:href|src)="([^"]*)"', MarkdownIt("commonmark").enable("table").render(page)
    )


def test_the_readme_on_the_package_page_has_no_relative_link_without_a_repository() -> None:
    assert any(not link.startswith("https://") for link in page_links(README))
    page = loaded("hatch_build.py").with_absolute_links(README, "", "0.1.0")
    assert all(link.startswith("https://") for link in page_links(page))
    assert "](" not in re.sub(r"\]\(https://[^)]*\)", "", page)
    blocks = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
    assert blocks.findall(page) == blocks.findall(README)


def test_links_of_the_package_page_lead_to_the_files_of_the_version() -> None:
    address = "https://example.org/headtohead"
    page = loaded("hatch_build.py").with_absolute_links(README, address, "0.1.0")
    links = page_links(page)
    assert len(links) == len(page_links(README))
    assert all(link.startswith("https://") for link in links)
    assert f"{address}/raw/v0.1.0/docs/images/report.png" in links
    files = [
        link.removeprefix(f"{address}/blob/v0.1.0/").partition("#")[0]
        for link in links
        if link.startswith(f"{address}/blob/")
    ]
    assert len(files) > 20
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_addresses_are_the_same_in_all_files_and_empty_ones_are_no_links() -> None:
    addresses = PROJECTS["pyproject.toml"]["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = dict(re.findall(r'(?m)^(site_url|repo_url): "([^"]*)"', site))
    assert found == {"site_url": addresses["site"], "repo_url": addresses["repository"]}
    urls = loaded("hatch_build.py").addresses
    assert urls("", "") == {}
    assert urls("https://a", "https://b")["Repository"] == "https://a"
    assert urls("", "https://b") == {"Documentation": "https://b"}
    judge = PROJECTS["harness/judge/pyproject.toml"]["project"].get("urls", {})
    assert judge == urls(addresses["repository"], addresses["site"])


def test_the_oldest_versions_are_the_lower_bounds_of_both_packages(tmp_path: Path) -> None:
    script = loaded(".ci/oldest.py")
    lines = script.constraints(script.PROJECTS).splitlines()
    requirements = [
        requirement
        for project in PROJECTS.values()
        for requirement in project["project"]["dependencies"]
        if "==" not in requirement
    ]
    assert sorted(lines) == sorted({text.replace(">=", "==") for text in requirements})
    assert "torch==2.9" in lines
    for name, bound in (("a", "2.10"), ("b", "2.9")):
        (tmp_path / name).write_text(f'[project]\ndependencies = ["numpy>={bound}"]\n')
    assert script.constraints([tmp_path / "a", tmp_path / "b"]) == "numpy==2.10\n"
    with pytest.raises(ValueError, match="'numpy' has no lower bound"):
        script.oldest(["numpy"])


def release_job(name: str) -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key `on` as true
    job: dict[str, Any] = workflow["jobs"][name]
    return job


def test_a_release_is_tested_built_attested_and_published_without_a_password() -> None:
    assert release_job("test")["uses"] == "./.github/workflows/ci.yml"
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert "workflow_call" in ci[True]
    build, publish = release_job("build"), release_job("publish")
    assert (build["needs"], publish["needs"]) == ("test", "build")
    used = [step["uses"].partition("@")[0] for step in build["steps"] if "uses" in step]
    assert used[-2:] == ["actions/attest-build-provenance", "actions/upload-artifact"]
    assert publish["permissions"] == {"id-token": "write"}
    (*_, upload) = publish["steps"]
    assert upload["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert "password" not in upload.get("with", {})


@pytest.mark.slow
def test_the_build_steps_of_the_release_workflow_build_both_packages(tmp_path: Path) -> None:
    """Nothing is installed: pip only resolves the pinned backend, which developers have."""
    source = copied(tmp_path / "source")
    changelog = source / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(text.replace("0.1.0, unreleased", "0.1.0, 2026-01-01"), encoding="utf-8")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "Release"]):
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *command], cwd=source, check=True)
    environment = build_environment(GITHUB_REF_NAME="v0.1.0", PIP_DRY_RUN="1", PIP_NO_INDEX="1")
    environment.pop("SOURCE_DATE_EPOCH", None)
    steps = [step["run"] for step in release_job("build")["steps"] if "run" in step]
    assert len(steps) == 3
    for step in steps:
        command = ["bash", "-e", "-c", step]
        done = subprocess.run(
            command, cwd=source, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in (source / "dist").iterdir())
    assert names == [
        "headtohead-0.1.0-py3-none-any.whl",
        "headtohead-0.1.0.tar.gz",
        "headtohead_judge-0.1.0-py3-none-any.whl",
        "headtohead_judge-0.1.0.tar.gz",
    ]


def test_only_the_tag_of_a_version_with_a_date_is_released(tmp_path: Path) -> None:
    problems = loaded(".ci/tag.py").problems
    for name in (*PROJECTS, "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    version = PROJECTS["pyproject.toml"]["project"]["version"]
    text = re.sub(
        rf"(?m)^## {version}.*$", f"## {version}, unreleased", changelog.read_text("utf-8")
    )
    changelog.write_text(text, encoding="utf-8")
    missing = f"CHANGELOG.md lacks the heading '## {version}, YYYY-MM-DD'"
    assert problems(f"v{version}", tmp_path) == [missing]
    changelog.write_text(text.replace(", unreleased", ", 2026-01-31"), encoding="utf-8")
    assert problems(f"v{version}", tmp_path) == []
    assert len(problems("v9.0.0", tmp_path)) == 4
    assert problems(version, tmp_path) != []
