from __future__ import annotations

import importlib
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """The module that writes invented studies."""
    return importlib.import_module("report.study")
