"""The tested Python versions, and the only warning of torch on one of them."""

from __future__ import annotations

import importlib.util
import re
import tomllib
import warnings
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def test_ci_runs_the_whole_check_on_every_tested_python() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    (run,) = [step for step in job["steps"] if "run" in step]
    assert run["run"] == ".ci/run"
    assert (ROOT / run["run"]).stat().st_mode & 0o111
    assert run["env"] == {"PYTHON": "python"}, "the Makefile takes the Python of the matrix"


def test_torchs_warning_on_python_3_13_0_is_ignored_and_other_warnings_are_errors() -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    guards = (Path(spec.origin).parent / "_dynamo" / "guards.py").read_text(encoding="utf-8")
    found = re.search(r'"(Guards may run slower on Python 3\.13\.0[^"]*)",\s+RuntimeWarn', guards)
    assert found is not None, "torch no longer warns: remove the filter in pyproject.toml"
    warnings.warn(found[1], RuntimeWarning, stacklevel=1)
    with pytest.raises(RuntimeWarning):
        warnings.warn("Guards may run slower on Python 3.14.0.", RuntimeWarning, stacklevel=1)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    first, *ignored = settings["tool"]["pytest"]["ini_options"]["filterwarnings"]
    assert first == "error"
    assert len(ignored) == 1
