"""Packages import only packages above them in docs/internals/architecture.md, and files never import in a circle.

Both are read from every import statement.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import headtohead.plugin

ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "harness" / "headtohead"
JUDGE = ROOT / "harness" / "judge" / "headtohead_judge"
PLUGINS = ROOT / "plugins" / "headtohead_plugins"
MLFLOW = ROOT / "plugins" / "headtohead_mlflow"
NOTEBOOKS = ROOT / "plugins" / "headtohead_notebooks"
PAGE = ROOT / "docs" / "internals" / "architecture.md"
DATASET_IMPORTS = "headtohead.data"
NOTEBOOK_OUTPUT = {
    "analysis/results.py": "headtohead.report.notebook.runs_html",
    "execution/loaded.py": "headtohead.report.notebook.loaded_html",
    "planning/plan.py": "headtohead.report.notebook.plan_html",
    "training/maps.py": "headtohead.report.notebook.maps_html",
}
"""The only imports of a later package: the call in ``_repr_html_``, which Jupyter requires to be a method of the class.

The package ``report`` draws the output from the object, so it imports the class.
"""


class Import(NamedTuple):
    """One imported name and the file that imports it."""

    file: Path
    line: int
    name: str


def imports_of(path: Path) -> Iterator[Import]:
    """Yield every import of a file, those inside functions and under ``TYPE_CHECKING`` too."""
    yield from imports_in(path, ast.parse(path.read_text(encoding="utf-8")))


def imports_in(path: Path, tree: ast.AST) -> Iterator[Import]:
    """Yield every import of a part of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(path, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name"
            yield from (
                Import(path, node.lineno, f"{node.module}.{alias.name}") for alias in node.names
            )


@cache
def imports(folder: Path) -> tuple[Import, ...]:
    """Return the imports of a package, without those of ``NOTEBOOK_OUTPUT``."""
    every = (found for path in sorted(folder.rglob("*.py")) for found in imports_of(path))
    return tuple(found for found in every if not is_notebook_output(found))


def is_notebook_output(found: Import) -> bool:
    """Return whether an import is one of ``NOTEBOOK_OUTPUT``."""
    if not found.file.is_relative_to(HARNESS):
        return False
    return NOTEBOOK_OUTPUT.get(found.file.relative_to(HARNESS).as_posix()) == found.name


@cache
def import_order() -> tuple[str, ...]:
    block = re.search(
        r"^harness/headtohead/\n(.*?)^plugins/",
        PAGE.read_text(encoding="utf-8"),
        re.S | re.M,
    )
    assert block is not None
    return tuple(re.findall(r"^    (\w+)", block[1], re.MULTILINE))


def package_of(path: Path) -> str:
    return path.relative_to(HARNESS).with_suffix("").parts[0]


def wrong_way(found: Import, order: tuple[str, ...]) -> bool:
    """Return whether an import of one of our packages points at a package below the importing one."""
    parts = found.name.split(".")
    if parts[0] != "headtohead" or parts[1:2] == [] or parts[1] not in order:
        return False
    return order.index(parts[1]) > order.index(package_of(found.file))


def test_the_page_lists_every_package() -> None:
    present = {package_of(path) for path in HARNESS.rglob("*.py")} - {"__init__"}
    assert sorted(import_order()) == sorted(present)


def test_packages_import_only_packages_above_them() -> None:
    order = import_order()
    wrong = []
    for imported in imports(HARNESS):
        if imported.file != HARNESS / "__init__.py" and wrong_way(imported, order):
            wrong.append(f"{imported.file}:{imported.line} imports {imported.name}")
    assert wrong == []


@pytest.mark.parametrize("file", NOTEBOOK_OUTPUT)
def test_the_exempt_import_is_inside_the_method_for_notebooks(file: str) -> None:
    path = HARNESS / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = [
        found
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "_repr_html_"
        for found in imports_in(path, node)
    ]
    assert [found.name for found in inside] == [NOTEBOOK_OUTPUT[file]]
    assert [found for found in imports_of(path) if is_notebook_output(found)] == inside


def test_an_import_inside_a_function_counts(tmp_path: Path) -> None:
    source = (
        "def late():\n    from headtohead.cli import main\n    import headtohead.report.writing\n"
    )
    (tmp_path / "planted.py").write_text(source)
    planted = [
        imported._replace(file=HARNESS / "model" / "planted.py")
        for imported in imports_of(tmp_path / "planted.py")
    ]
    assert [wrong_way(imported, import_order()) for imported in planted] == [True, True]


def circle(folder: Path) -> list[str]:
    """Return the modules of a circle of imports between the files of a package, in order; empty without a circle."""
    paths = {
        path: path.relative_to(folder.parent).with_suffix("").parts for path in folder.rglob("*.py")
    }
    modules = {path: ".".join(parts).removesuffix(".__init__") for path, parts in paths.items()}
    graph: dict[str, set[str]] = {}
    for found in imports(folder):
        source, known = modules[found.file], modules.values()
        target = found.name if found.name in known else found.name.rpartition(".")[0]
        if target in known and target != source:
            graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize(
    "folder", [JUDGE, HARNESS, PLUGINS, MLFLOW, NOTEBOOKS], ids=lambda folder: folder.name
)
def test_no_files_import_each_other_in_a_circle(folder: Path) -> None:
    assert circle(folder) == []


@pytest.mark.parametrize(
    "back", ["def late():\n    import planted.first", "if True:\n    from planted import first"]
)
def test_a_circle_over_three_files_is_found(tmp_path: Path, back: str) -> None:
    folder = tmp_path / "planted"
    folder.mkdir()
    sources = {
        "__init__": "",
        "first": "import planted.second",
        "second": "from planted import third",
        "third": back,
    }
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    assert set(circle(folder)) == {"planted.first", "planted.second", "planted.third"}


def test_only_the_public_names_refer_to_headtohead_itself() -> None:
    """Host packages import each other by their modules, so that the order above covers every import."""
    names = {imported.name for imported in imports(HARNESS)}
    public = {
        name for name in names if re.match(r"headtohead(\.|$)", name) and name.count(".") == 1
    }
    assert public <= {f"headtohead.{name}" for name in import_order()}


def test_only_its_logger_imports_mlflow() -> None:
    def imports_mlflow(folder: Path) -> bool:
        return any(imported.name.split(".")[0] == "mlflow" for imported in imports(folder))

    assert imports_mlflow(MLFLOW)
    assert not any(map(imports_mlflow, (HARNESS, PLUGINS, NOTEBOOKS)))


def test_the_judge_imports_its_dependencies_alone() -> None:
    """Parquet files need pyarrow, an extra; the other libraries are those of ``harness/judge/pyproject.toml``."""
    allowed = {"headtohead_judge", "numpy", "scipy", "pandas", "click", "pyarrow"}
    top_level = {imported.name.split(".")[0] for imported in imports(JUDGE)}
    assert top_level - sys.stdlib_module_names == allowed


def imports_from(folder: Path, packages: tuple[str, ...]) -> list[Import]:
    """Return the imports of a package whose names begin with the name of one of ``packages``."""
    return [imported for imported in imports(folder) if imported.name.startswith(packages)]


def test_headtohead_imports_no_plugin() -> None:
    packages = (PLUGINS.name, MLFLOW.name, NOTEBOOKS.name)
    assert imports_from(HARNESS, packages) == []
    for folder in (PLUGINS, MLFLOW):
        others = tuple(name for name in packages if name != folder.name)
        assert imports_from(folder, others) == []


def test_plugins_import_only_public_names() -> None:
    public = {f"headtohead.{name}" for name in headtohead.__all__}
    public |= {f"headtohead.plugin.{name}" for name in headtohead.plugin.__all__}

    def is_public(name: str) -> bool:
        return name in public or name.rpartition(".")[0] == DATASET_IMPORTS

    private = []
    for imported in imports(PLUGINS):
        is_of_host = imported.name.split(".")[0] == "headtohead"
        if is_of_host and not is_public(imported.name):
            private.append(f"{imported.file}:{imported.line} imports {imported.name}")
    assert private == []


def test_datasets_import_from_data_only_what_it_exports() -> None:
    from headtohead import data

    names = {
        imported.name.removeprefix("headtohead.data.")
        for imported in imports(PLUGINS)
        if DATASET_IMPORTS in imported.name
    }
    assert names
    assert names <= set(data.__all__)


def test_an_entry_imports_only_its_own_parts() -> None:
    """A folder beside an entry (``toy/`` beside ``toy_grammar.py``) is part of that entry."""
    crossing = []
    for imported in imports(PLUGINS):
        target = imported.name.split(".")
        if target[0] == PLUGINS.name:
            source = imported.file.relative_to(PLUGINS).with_suffix("").parts
            if source[0] != target[1] or not source[1].startswith(target[2]):
                crossing.append(f"{imported.file}:{imported.line} imports {imported.name}")
    assert crossing == []


def test_no_public_name_is_that_of_a_package() -> None:
    """Importing ``headtohead.report`` sets the attribute ``report``, which would hide a function of that name."""
    assert set(headtohead.__all__) & set(import_order()) == set()


def test_users_and_authors_of_plugins_share_only_the_error() -> None:
    assert set(headtohead.__all__) & set(headtohead.plugin.__all__) == {"HeadToHeadError"}
