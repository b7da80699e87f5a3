"""Names that are imported at first use: the mapping equals the imports that type checkers read."""

import ast
import importlib
import subprocess
import sys

import pytest

MODULES = ["headtohead", "headtohead.cli", "headtohead.plugin", "headtohead_notebooks"]


def typed_imports(module: str) -> dict[str, str]:
    """Return the home module of every name that a module imports in its block ``if TYPE_CHECKING``."""
    source = importlib.import_module(module).__file__
    assert source is not None
    with open(source, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    (block,) = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    homes = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            if (
                alias.name == "*"
            ):  # the base classes, which the list of families imports for type checkers
                homes |= typed_imports(str(statement.module))
            elif not (alias.asname or alias.name).startswith("_"):
                homes[alias.name] = str(statement.module)
    return homes


@pytest.mark.parametrize("module", MODULES)
def test_the_mapping_equals_the_imports_of_type_checkers(module: str) -> None:
    typed = typed_imports(module)
    if module == "headtohead":
        assert typed.pop("plugin") == "headtohead"  # a submodule, not a name of another module
    assert vars(importlib.import_module(module))["_MODULES"] == typed


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_the_object_of_its_home_module(module: str) -> None:
    offered = importlib.import_module(module)
    for name, home in vars(offered)["_MODULES"].items():
        assert getattr(offered, name) is getattr(importlib.import_module(home), name)
    assert dir(offered) == sorted(offered.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_an_unknown_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"^module '{module}' has no attribute 'nonsense'$"):
        importlib.import_module(module).nonsense  # noqa: B018


def test_the_names_of_plugins_need_no_import_of_their_own() -> None:
    code = (
        "import headtohead as h2h; print(h2h.plugin.hookimpl, 'torch' in __import__('sys').modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" False\n")


def test_importing_the_public_modules_loads_no_heavy_library() -> None:
    code = f"import sys, {', '.join(MODULES)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "mlflow", "pandas", "numpy"} & {*done.stdout.split()} == set()
