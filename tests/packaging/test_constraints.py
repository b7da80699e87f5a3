"""The constraints file pins every package of an installation to an exact version."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.]+)")
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")
VENV_BRINGS = {"pip", "setuptools"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(matches), "every line is name==version, without a local label"
    return {normal(match["name"]): match["version"] for match in matches if match}


def needed() -> set[str]:
    """Return all installed dependencies of headtohead and of its developers' extra.

    CUDA builds of torch pin triton and the libraries of CUDA themselves.
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
            wanted = "extra ==" not in text and not (name == "torch" and "==" in text.partition(";")[0])
            if wanted and required not in found and required in installed:
                found.add(required)
                waiting.append((required, metadata.requires(required) or []))
    return found


def test_every_dependency_is_pinned() -> None:
    required = needed()
    assert {"torch", "mlflow", "numpy", "pytest", "markupsafe"} <= required
    assert required - set(pins()) - VENV_BRINGS == set()


def test_the_cpu_build_in_the_readme_is_the_tested_torch() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"`torch=={pins()['torch']}`" in readme


def test_no_installation_file_names_a_package_index() -> None:
    for name in ("constraints.txt", "pyproject.toml", "Makefile", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|--(extra-)?index-url|find-links", text), name
