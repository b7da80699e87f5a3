"""The constraints file pins every package of an installation to an exact version."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.]+)")
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")
VENV_BRINGS = {"pip", "setuptools"}
PINNED_IN_EXTRA = {"triton"}
"""A constraint would conflict with the version that CUDA builds of torch require, so the extra `dev` has the pin."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(matches), "every line is name==version, without a local label"
    return {normal(match["name"]): match["version"] for match in matches if match}


def needed() -> set[str]:
    """Return all installed dependencies of headtohead and of its developers' extra."""
    found: set[str] = set()
    waiting = [("headtohead", True)]
    while waiting:
        name, with_dev = waiting.pop()
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for text in requirements:
            extra = re.search(r"extra == ['\"](\w+)['\"]", text)
            match = REQUIREMENT.match(text)
            assert match
            wanted = not extra or (with_dev and extra.group(1) == "dev")
            required = normal(match.group(1))
            if wanted and required not in found and _is_installed(required):
                found.add(required)
                waiting.append((required, False))
    return found


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_every_dependency_is_pinned() -> None:
    required = needed()
    assert {"torch", "mlflow", "numpy", "pytest", "markupsafe"} <= required
    assert required - set(pins()) - VENV_BRINGS == PINNED_IN_EXTRA


def test_torch_and_mlflow_have_the_tested_versions() -> None:
    assert (pins()["torch"], pins()["mlflow"]) == ("2.13.0", "3.17.2")


def test_no_installation_file_names_a_package_index() -> None:
    for name in ("constraints.txt", "pyproject.toml", "Makefile", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|--(extra-)?index-url|find-links", text), name
