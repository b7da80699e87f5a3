"""Registration of plugins: atomic, and repeatable in a notebook."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from headtohead import register
from headtohead.plugins.hookspecs import hookimpl
from headtohead.plugins.registry import current, use_files
from made import plugin_file, refused

SOURCE = plugin_file("def bias(self, query_positions, key_positions, role, layer): return None", name="mine")
pytestmark = pytest.mark.usefixtures("own_registry")


def module(text: str = SOURCE) -> ModuleType:
    made = ModuleType("cell")
    exec(compile(text, "cell", "exec"), made.__dict__)
    return made


def names_of_plugins() -> set[str]:
    return {name for name, _ in current().manager.list_name_plugin()}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (("register_positionals", "register_positional"), "unknown hook 'register_positional'"),
        (('"mine"', '"alibi"'), "two plugins register positional 'alibi'"),
        (
            ('"mine": Own}', '"mine": Own}\n\n@hookimpl\ndef on_run_start(folder):\n    pass'),
            "plugin 'cell' (python): hook 'on_run_start' takes run; got 'folder'",
        ),
    ],
    ids=["misspelt", "taken", "wrong argument"],
)
def test_a_failed_registration_changes_nothing_and_can_be_corrected(fault: tuple[str, str], message: str) -> None:
    before = names_of_plugins(), list(current().objects), {entry.name for entry in current().all()}
    assert message in refused(register, module(SOURCE.replace(*fault)))
    assert (names_of_plugins(), current().objects, {entry.name for entry in current().all()}) == before
    assert current().manager.hook.on_run_start(run=Path("somewhere")) == []
    good = module()
    register(good)
    assert message in refused(register, module(SOURCE.replace(*fault)))
    assert current().positional("mine") is good.Own
    assert current().objects == [good]
    assert good in current().manager.get_plugins()


def test_a_class_registered_again_replaces_the_earlier_class() -> None:
    calls: list[str] = []

    def cell(number: int) -> object:
        made = module()

        class Plugin:
            @hookimpl
            def register_positionals(self) -> dict[str, type]:
                return {"mine": made.Own}

            @hookimpl
            def on_run_start(self, run: Path) -> None:
                calls.append(f"{number} {run}")

        register(Plugin())
        return made.Own

    first, second = cell(1), cell(2)
    assert first is not second
    assert current().positional("mine") is second
    assert len(current().objects) == 1
    current().manager.hook.on_run_start(run=Path("a"))
    assert calls == ["2 a"]


def test_a_loaded_plugin_that_is_registered_again_keeps_its_registration(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE, "utf-8")
    use_files([path])
    before = [*current().all()]
    for name in (current().dataset("tatoeba").__module__, current().positional("mine").__module__):
        register(sys.modules[name])
    assert [*current().all()] == before
    assert current().objects == []


def test_a_corrected_plugin_file_loads_in_the_same_process(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    for text, message in [
        ("import no_such_module\n", "failed to import"),
        (SOURCE.replace("register_positionals", "register_positional"), "unknown hook"),
    ]:
        path.write_text(text, "utf-8")
        assert message in refused(use_files, [path])
        assert path.resolve() not in current().files
    path.write_text(SOURCE, "utf-8")
    use_files([path])
    assert "mine" in current().entries["positional"]
