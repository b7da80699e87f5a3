import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(stem: str) -> ModuleType:
    name = f"headtohead_test_{stem}"
    if name not in sys.modules:
        file = Path(__file__).with_name(f"{stem}.py")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """The module that writes made-up studies."""
    return _load("study")


@pytest.fixture(scope="session")
def quickstart(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write_study(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def messy(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write_study(tmp_path_factory.mktemp("runs"), made.messy())


@pytest.fixture(scope="session")
def between() -> ModuleType:
    """The module that writes made-up studies between two configurations."""
    return _load("between_study")
