"""The soak test: kills lose nothing, and a planted fault is found."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def soak(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("soak")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_lose_nothing(soak: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "soak.md"
    code = soak.main(["--kills", "2", "--seed", "3", "--folder", str(tmp_path / "studies"), "--write", str(page)])
    assert code == 0, capsys.readouterr().out
    assert "| any of these | 2 | 1 | 0 | 0 | 0 |" in page.read_text()
