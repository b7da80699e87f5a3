"""The command line, run in the process of the tests."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from headtohead.cli import main
from made import separate_registry


@pytest.fixture
def h2h(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Run a command in an empty folder with a separate registry; return exit code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(cache))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.output

    with nullcontext() if "fewest" in request.fixturenames else separate_registry():
        yield call
