"""Tiny trained studies."""

import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from made.study import Completed, Study

Command = Callable[..., Completed]


@pytest.fixture(autouse=True)
def reports_without_figures(without_figures: None) -> None:
    """Leave figures out of the reports of commands in this process."""


@pytest.fixture(autouse=True)
def prepared(request: pytest.FixtureRequest, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share prepared data, and train with a plugin file at once: the check of its code takes seconds."""
    monkeypatch.setenv("H2H_CACHE", str(cache))
    if request.path.name != "test_plugin_checks.py":
        monkeypatch.setattr(
            "headtohead.testing.checks.before_training.check_before_training",
            lambda *arguments: None,
        )


@pytest.fixture
def study(tmp_path: Path, cache: Path, h2h_here: Command) -> Study:
    made = Study(tmp_path, cache, h2h_here)
    made.write()
    return made


@pytest.fixture(scope="session")
def undisturbed(once: Callable[..., Path], cache: Path, h2h_here: Command) -> Study:
    """The study that nothing happens to."""

    def train(folder: Path) -> None:
        made = Study(folder, cache, h2h_here)
        made.write()
        made.run()
        assert set(made.states().values()) == {"DONE"}

    return Study(once("undisturbed", train), cache, h2h_here)


@pytest.fixture
def finished(study: Study, undisturbed: Study) -> Study:
    """A study whose runs are copies of those of the undisturbed study."""
    shutil.copytree(undisturbed.runs, study.runs, ignore=shutil.ignore_patterns(".reproduced"))
    return study


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files of this process to 4 KiB; Python ignores the signal of the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
