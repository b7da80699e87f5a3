"""A package written by ``h2h new-plugin`` can be installed, listed, tested and planned without changes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headtohead.plugins.template import TEMPLATE_FAMILIES

pytestmark = pytest.mark.timeout(300)
MODEL = ("positional", "attention", "masking")


def blocks(package: Path, kind: str) -> list[str]:
    text = (package / "README.md").read_text("utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def tested(installation):
    """The output of pytest in the folder of each family's package."""
    return installation.each(dict.fromkeys(TEMPLATE_FAMILIES, ("pytest", "-q", "-p", "no:cacheprovider")))


@pytest.mark.slow
@pytest.mark.parametrize("family", TEMPLATE_FAMILIES)
def test_the_tests_of_each_package_pass(tested, family: str) -> None:
    done = tested[family]
    assert done.returncode == 0, done.stdout
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    assert int(passed.group(1)) >= (8 if family == "dataset" else 20)


@pytest.mark.slow
def test_the_entries_are_listed_with_their_origin(installation, tmp_path: Path) -> None:
    listed = installation.h2h(tmp_path, "plugins").stdout
    for family in TEMPLATE_FAMILIES:
        assert re.search(
            rf"^{family} +my-{family} .* h2h_my_{family} \(h2h-my-{family} 0\.1\)$", listed, re.MULTILINE
        ), listed


@pytest.mark.slow
def test_the_experiments_of_the_packages_can_be_planned(installation) -> None:
    words = ("plan", "experiment.yaml", "--set", "data.limit=300")
    for family, done in installation.each(dict.fromkeys(TEMPLATE_FAMILIES, words)).items():
        assert done.returncode == 0, done.stderr
        assert f"my-{family}" in done.stdout
        assert "to run in " in done.stdout, done.stdout


@pytest.mark.slow
def test_the_entries_train(installation) -> None:
    small = ["data.limit=300", "train.epochs=1", "evaluate.test_limit=10", "evaluate.unpadded=false"]
    sets = [word for override in small for word in ("--set", override)]
    words = ("run", "experiment.yaml", "--seeds", "1", "--no-tracking", *sets)
    for family, done in installation.each(dict.fromkeys(MODEL, words)).items():
        assert done.returncode == 0, done.stderr
        page = installation.packages[family] / "reports" / "experiment" / "index.html"
        assert f"my-{family}" in page.read_text("utf-8")


@pytest.mark.slow
def test_every_command_of_the_readmes_exists(installation) -> None:
    commands = {}
    for family in TEMPLATE_FAMILIES:
        (shell,) = blocks(installation.packages[family], "sh")
        commands[family] = [line.split("#")[0].split() for line in shell.splitlines()]
        assert [words[:2] for words in commands[family]] == [
            ["pip", "install"],
            ["h2h", "plugins"],
            ["pytest"],
            ["h2h", "data" if family == "dataset" else "check"],
            ["h2h", "plan"],
            ["h2h", "run"],
        ]
    described = installation.each({family: commands[family][1][1:] for family in TEMPLATE_FAMILIES})
    for family, done in described.items():
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"my-{family} ({family})")
    shown = installation.each({"dataset": commands["dataset"][3][1:]})["dataset"]
    assert shown.returncode == 0, shown.stderr


@pytest.mark.slow
def test_the_printed_next_steps_work(h2h, tmp_path: Path, make_environment) -> None:
    done = h2h("new-plugin", "masking", "next-step", "--folder", "my package")
    steps = done.stdout.partition("next:\n")[2]
    python = make_environment(tmp_path / "environment")
    for name, module in {"pip": f"{sys.executable} -m pip --python {python}", "pytest": f"{python} -m pytest"}.items():
        (python.parent / name).write_text(f'#!/bin/sh\nexec {module} "$@"\n')
        (python.parent / name).chmod(0o755)
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
    quick = {"PYTEST_ADDOPTS": "--collect-only -q -p no:cacheprovider"}
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["sh", "-e", "-c", steps],
        cwd=tmp_path,
        env=os.environ | offline | quick | path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^\d+ tests collected", ran.stdout, re.MULTILINE), ran.stdout
    requirements = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.requires('h2h-next-step'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for extra in re.findall(r"pip install -e '\.\[(\w+)\]'", steps):
        assert f"extra == '{extra}'" in requirements.replace('"', "'")
    assert "pip install -e '.[test]'" in steps


@pytest.mark.slow
def test_check_accepts_the_plugin_file_without_an_installation(tmp_path: Path, h2h) -> None:
    assert h2h("new-plugin", "masking", "dilated").returncode == 0
    name = "masking/dilated"
    done = h2h("check", name, "--plugin", "dilated/h2h_dilated.py")
    assert done.returncode == 0, done.stdout
    assert name in done.stdout
    assert re.search(r"^mask-properties +holds", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("family", TEMPLATE_FAMILIES)
def test_a_package_is_complete_without_an_editable_install(installation, family: str, tmp_path: Path) -> None:
    """A wheel contains the module and the entry point, and no tests."""
    package = installation.packages[family]
    build = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    done = installation.call(package, "-c", build)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    listed = installation.call(tmp_path, "-m", "zipfile", "-l", wheel.name).stdout
    assert f"h2h_my_{family}.py" in listed
    assert "test_" not in listed
    assert "entry_points.txt" in listed


@pytest.mark.parametrize("family", TEMPLATE_FAMILIES)
def test_no_file_has_an_unfilled_placeholder(packages, family: str) -> None:
    for path in packages[family].iterdir():
        if path.is_file():
            text = path.read_text("utf-8")
            assert "$" not in text, path
            assert "my-idea" not in text, path
            assert "MyIdea" not in text, path
    content = (packages[family] / "experiment.yaml").read_text("utf-8")
    assert yaml.safe_load(content)["question"].endswith("?")
