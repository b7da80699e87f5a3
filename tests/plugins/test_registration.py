"""Registration of plugins is atomic and repeatable in a notebook; a mistake in a hook is named with what it takes."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from headtohead import register
from headtohead.config.entries import plugins_of
from headtohead.model.counting import count
from headtohead.plugins.hookspecs import hookimpl
from headtohead.plugins.registry import current, find_dataset, find_positional, use_files
from headtohead.plugins.sources import source_sha256
from headtohead.testing import tiny_config
from made import plugin_file, refused

SOURCE = plugin_file(
    "def bias(self, query_positions, key_positions, role, layer): return None", name="mine"
)
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
def test_a_failed_registration_changes_nothing_and_can_be_corrected(
    fault: tuple[str, str], message: str
) -> None:
    before = names_of_plugins(), list(current().objects), {entry.name for entry in current().all()}
    assert message in refused(register, module(SOURCE.replace(*fault)))
    assert (
        names_of_plugins(),
        current().objects,
        {entry.name for entry in current().all()},
    ) == before
    assert current().manager.hook.on_run_start(run=Path("somewhere")) == []
    good = module()
    register(good)
    assert message in refused(register, module(SOURCE.replace(*fault)))
    assert find_positional("mine") is good.Own
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
    assert find_positional("mine") is second
    assert len(current().objects) == 1
    current().manager.hook.on_run_start(run=Path("a"))
    assert calls == ["2 a"]


def test_a_loaded_plugin_that_is_registered_again_keeps_its_registration(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE, "utf-8")
    use_files([path])
    before = [*current().all()]
    for name in (find_dataset("tatoeba").__module__, find_positional("mine").__module__):
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


def load(family, body):
    registry = current()
    registry.add_file(Path("mine.py"), plugin_file(body, family).encode())
    return registry


@pytest.mark.parametrize(
    ("family", "body", "message"),
    [
        (
            "attention",
            "def post_head(self, heads): return heads",
            "unknown hook 'post_head'; did you mean 'post_heads'?",
        ),
        (
            "positional",
            "def rotate(self, x, positions, role): return x",
            "write 'def rotate(self, x, positions, role, layer)'; got rotate(self, x, positions, role)",
        ),
        (
            "positional",
            "def bias(self, key_positions, query_positions, role, layer): return None",
            "write 'def bias(self, query_positions, key_positions, role, layer)'; got bias(self, key_positions, "
            "query_positions, role, layer)",
        ),
        (
            "attention",
            "def geometry(self, options, model): return None",
            "write '@classmethod def geometry(cls, options, model)'; got geometry(self, options, model)",
        ),
    ],
)
def test_a_wrong_name_or_signature_is_an_error_when_the_plugin_is_loaded(family, body, message):
    assert refused(load, family, body) == f"plugin 'mine.py' (file): {family} 'own': {message}"


@pytest.mark.parametrize(
    ("family", "body"),
    [
        ("positional", "def bias(self, q, k, role, layer=None, more=0): return None"),
        ("positional", "def _slopes(self): return 1"),
        ("attention", "def extra_repr(self): return 'own'"),
    ],
)
def test_other_names_of_arguments_and_helpers_are_accepted(family, body):
    assert load(family, body).find(family, "own").entry.__name__ == "Own"


@pytest.mark.parametrize(
    ("family", "body", "message"),
    [
        (
            "attention",
            "def post_heads(self, heads, x, values): return heads.sum(-1)",
            "a tensor [1, 1, 4, 5]; return a tensor [member 1, batch 1, head 4, query 5, value_width 4]",
        ),
        (
            "attention",
            "def post_heads(self, heads, x, values): return heads.double()",
            "a tensor of torch.float64; return torch.float32, the dtype of its arguments",
        ),
        (
            "attention",
            "def transform(self, q, k): return q",
            "Tensor; return a tuple of two tensors",
        ),
        (
            "attention",
            "geometry = classmethod(lambda cls, options, model: (4, 4))",
            "tuple; return a headtohead.plugin.Geometry",
        ),
        (
            "positional",
            "def rotate(self, x, positions, role, layer): return x[:, :1, :1]",
            "a tensor [1, 1, 1, 5, 4]; return a tensor [member 1, batch 1, head 4, time 5, key_width 4]",
        ),
        (
            "masking",
            "def mask(self, role, query, key, lengths): return (query[:, None] - key)[None]",
            "a tensor of torch.int64; return torch.bool, True where a query attends to a key",
        ),
    ],
)
def test_a_wrong_result_is_an_error_with_the_hook_and_what_to_return(family, body, message):
    load(family, body)
    hook = body.removeprefix("def ").partition("(" if body.startswith("def") else " =")[0]
    assert (
        refused(count, tiny_config(**{family: "own"}), 9, 9, 5, 5)
        == f"Own.{hook} returned {message}"
    )


def test_an_import_that_uses_the_global_generator_is_refused():
    assert refused(load, "attention", "table = torch.randn(4)") == (
        "plugin 'mine.py' (file) samples from torch's global generator; sample in build with "
        "self.parameter or self.buffer, and in hooks with PerMemberRNG"
    )


CHILD = """
from headtohead import registered
from headtohead.plugin import hookimpl

class Child(registered("positional", "mine")):
    phrase = "with the child"

@hookimpl
def register_positionals():
    return {"child": Child}
"""


def test_an_entry_uses_the_entry_of_another_plugin_that_it_inherits_from(tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    child = tmp_path / "child.py"
    parent.write_text(SOURCE)
    child.write_text(CHILD)
    use_files([parent])
    use_files([child])
    used = {entry.name: entry for entry in plugins_of(tiny_config("child"))}
    assert {"child", "mine"} <= used.keys()
    assert used["mine"].source_sha256 == source_sha256(parent)
