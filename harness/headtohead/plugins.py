"""Loading plugins and looking entries up by name.

Built-ins are the literal tuple below and are registered like anyone's; outsiders come by the
entry-point group ``headtohead``, by ``--plugin file.py`` or by ``headtohead.register``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import pluggy

from headtohead import hookspecs
from headtohead.errors import HeadToHeadError, nearest

if TYPE_CHECKING:
    from headtohead.families.attention import Attention
    from headtohead.families.dataset import Dataset
    from headtohead.families.entry import Entry
    from headtohead.families.launcher import Launcher
    from headtohead.families.masking import Masking
    from headtohead.families.positional import Positional
    from headtohead.families.recipe import Recipe

BUILT_IN = (
    "headtohead_plugins.positional.none",
    "headtohead_plugins.positional.sinusoidal",
    "headtohead_plugins.positional.learned",
    "headtohead_plugins.positional.rotary",
    "headtohead_plugins.positional.alibi",
    "headtohead_plugins.positional.t5_relative",
    "headtohead_plugins.positional.shaw_relative",
    "headtohead_plugins.positional.kerple_log",
    "headtohead_plugins.positional.fire",
    "headtohead_plugins.positional.sandwich",
    "headtohead_plugins.positional.shape",
    "headtohead_plugins.positional.randomised",
    "headtohead_plugins.attention.split_heads",
    "headtohead_plugins.attention.independent_heads",
    "headtohead_plugins.attention.single_head",
    "headtohead_plugins.attention.grouped_query",
    "headtohead_plugins.attention.free_geometry",
    "headtohead_plugins.attention.embedding_softmax",
    "headtohead_plugins.attention.multi_query",
    "headtohead_plugins.attention.qk_norm",
    "headtohead_plugins.attention.talking_heads",
    "headtohead_plugins.attention.differential",
    "headtohead_plugins.attention.sigmoid",
    "headtohead_plugins.attention.linear",
    "headtohead_plugins.attention.uniform",
    "headtohead_plugins.attention.random",
    "headtohead_plugins.masking.none",
    "headtohead_plugins.masking.padding",
    "headtohead_plugins.masking.causal",
    "headtohead_plugins.masking.padding_causal",
    "headtohead_plugins.masking.window",
    "headtohead_plugins.masking.prefix",
    "headtohead_plugins.datasets.toy_grammar",
    "headtohead_plugins.datasets.notebook_pairs",
    "headtohead_plugins.datasets.tatoeba",
    "headtohead_plugins.datasets.copy",
    "headtohead_plugins.datasets.reverse",
    "headtohead_plugins.datasets.sort",
    "headtohead_plugins.datasets.lookup",
    "headtohead_plugins.datasets.addition",
    "headtohead_plugins.recipes.scratch_en_fr",
    "headtohead_plugins.recipes.architecture_en_de",
    "headtohead_plugins.recipes.tatoeba_en_es",
    "headtohead_plugins.recipes.slides_en_fr",
    "headtohead_plugins.recipes.by_hand_en_fr",
    "headtohead_plugins.launchers.local",
    "headtohead_plugins.launchers.ray",
    "headtohead_plugins.launchers.slurm",
)

FAMILIES = {
    "positional": "register_positionals",
    "attention": "register_attentions",
    "masking": "register_maskings",
    "dataset": "register_datasets",
    "recipe": "register_recipes",
    "launcher": "register_launchers",
}

ENTRY_POINT_GROUP = "headtohead"


@dataclass(frozen=True)
class Registered:
    """One entry and where it comes from; ``source_sha256`` hashes the file that defines it."""

    family: str
    name: str
    entry: type[Entry]
    module: str
    distribution: str
    version: str
    source_sha256: str


@dataclass
class Registry:
    """All entries of one process, by family and name."""

    manager: pluggy.PluginManager
    entries: dict[str, dict[str, Registered]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    objects: list[object] = field(default_factory=list)

    def find(self, family: str, name: str) -> Registered:
        """Return the entry, or raise HeadToHeadError with the nearest name of that family."""
        known = self.entries[family]
        if name not in known:
            raise HeadToHeadError(f"unknown {family} '{name}'{nearest(name, known)}")
        return known[name]

    def all(self) -> Iterator[Registered]:
        """Yield every entry, family by family, names in alphabetical order."""
        for family in FAMILIES:
            for name in sorted(self.entries[family]):
                yield self.entries[family][name]

    def positional(self, name: str) -> type[Positional]:
        return cast("type[Positional]", self.find("positional", name).entry)

    def attention(self, name: str) -> type[Attention]:
        return cast("type[Attention]", self.find("attention", name).entry)

    def masking(self, name: str) -> type[Masking]:
        return cast("type[Masking]", self.find("masking", name).entry)

    def dataset(self, name: str) -> type[Dataset]:
        return cast("type[Dataset]", self.find("dataset", name).entry)

    def recipe(self, name: str) -> type[Recipe]:
        return cast("type[Recipe]", self.find("recipe", name).entry)

    def launcher(self, name: str) -> type[Launcher]:
        return cast("type[Launcher]", self.find("launcher", name).entry)

    def add(self, plugin: object, label: str, distribution: str, version: str) -> None:
        """Register a module or object that implements hooks, and take its entries in."""
        try:
            name = self.manager.register(plugin, name=label)
            self.manager.check_pending()
        except (ValueError, pluggy.PluginValidationError) as error:
            hint = _misspelt_hook(plugin)
            raise HeadToHeadError(f"plugin '{label}' ({distribution}): {hint or error}") from error
        assert name is not None
        for family, hook in FAMILIES.items():
            implementation = getattr(plugin, hook, None)
            if implementation is not None and self.manager.parse_hookimpl_opts(plugin, hook):
                self._take(family, label, _call(implementation, label, distribution, hook),
                           distribution, version)  # fmt: skip

    def _take(
        self,
        family: str,
        label: str,
        found: Mapping[str, type[Entry]],
        distribution: str,
        version: str,
    ) -> None:
        for name, entry in found.items():
            other = self.entries[family].get(name)
            if other is not None:
                raise HeadToHeadError(
                    f"two plugins register {family} '{name}': {other.module} "
                    f"({other.distribution}) and {label} ({distribution}); rename one of them"
                )
            if "known_as" not in vars(entry):  # of two names of one class, the first
                entry.known_as = name
            self.entries[family][name] = Registered(
                family, name, entry, label, distribution, version, source_hash(entry)
            )


def source_hash(entry: type) -> str:
    """Return the sha256 of the file that defines ``entry``, or of its name where there is none."""
    module = sys.modules.get(entry.__module__)
    path = getattr(module, "__file__", None)
    if path and Path(path).is_file():
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return hashlib.sha256(f"{entry.__module__}.{entry.__qualname__}".encode()).hexdigest()


def load_registry(files: Iterable[Path] = (), objects: Iterable[object] = ()) -> Registry:
    """Build a fresh registry: built-ins, installed entry points, then files and objects.

    Raises:
        HeadToHeadError: If a plugin cannot be imported, misspells a hook, or takes a taken name.
    """
    manager = pluggy.PluginManager("headtohead")
    manager.add_hookspecs(hookspecs)
    registry = Registry(manager, {family: {} for family in FAMILIES})
    version = _version("headtohead")
    for module in BUILT_IN:
        registry.add(importlib.import_module(module), module, "headtohead", version)
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        distribution = point.dist.name if point.dist else "?"
        try:
            plugin = point.load()
        except Exception as error:
            raise _import_failure(point.value, distribution, error) from error
        registry.add(plugin, point.value, distribution, point.dist.version if point.dist else "?")
    for path in files:
        registry.add(_load_file(path), str(path), "file", "-")
        registry.files.append(path.resolve())
    for plugin in objects:
        registry.objects.append(plugin)
        label = getattr(plugin, "__name__", type(plugin).__qualname__)
        registry.add(plugin, label, "python", "-")
    return registry


_current: Registry | None = None


def current() -> Registry:
    """Return the registry of this process, loading built-ins and entry points at first use."""
    global _current
    if _current is None:
        _current = load_registry()
    return _current


@overload
def registered(family: Literal["positional"], name: str) -> type[Positional]: ...


@overload
def registered(family: Literal["attention"], name: str) -> type[Attention]: ...


@overload
def registered(family: Literal["masking"], name: str) -> type[Masking]: ...


@overload
def registered(family: str, name: str) -> type[Entry]: ...


def registered(family: str, name: str) -> type[Entry]:
    """Return a registered entry, for one that is made of another.

    Raises:
        HeadToHeadError: For an unknown name, with the nearest one.
    """
    return current().find(family, name).entry


def use_files(files: Iterable[Path]) -> Registry:
    """Load the given plugin files into the registry of this process, on top of what is there."""
    registry = current()
    for path in files:
        if path.resolve() not in registry.files:
            registry.add(_load_file(path), str(path), "file", "-")
            registry.files.append(path.resolve())
    return registry


def register(plugin: object) -> None:
    """Register a module or object from Python, for this process and the workers it starts."""
    registry = current()
    label = getattr(plugin, "__name__", type(plugin).__qualname__)
    registry.add(plugin, label, "python", "-")
    registry.objects.append(plugin)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise HeadToHeadError(f"plugin file '{path}' does not exist")
    name = f"headtohead_file_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise HeadToHeadError(
            f"plugin file '{path}' is not a Python file; its name must end in .py"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _import_failure(str(path), "file", error) from error
    return module


def _call(implementation: Any, label: str, distribution: str, hook: str) -> Mapping[str, Any]:
    try:
        found = implementation()
    except Exception as error:
        raise HeadToHeadError(f"plugin '{label}' ({distribution}): {hook} raised "
                              f"{type(error).__name__}: {error}") from error  # fmt: skip
    if not isinstance(found, Mapping):
        raise HeadToHeadError(
            f"plugin '{label}' ({distribution}): {hook} returned {type(found).__name__}; "
            "expected a mapping from name to class"
        )
    return found


def _import_failure(label: str, distribution: str, error: Exception) -> HeadToHeadError:
    reason = " ".join(str(error).split())
    return HeadToHeadError(
        f"plugin '{label}' ({distribution}) failed to import: {type(error).__name__}: {reason}"
    )


def _misspelt_hook(plugin: object) -> str | None:
    known = [name for name in vars(hookspecs) if name.startswith(("register_", "on_"))]
    for name in dir(plugin):
        marked = hasattr(getattr(plugin, name, None), "headtohead_impl")
        if marked and name not in known:
            return f"unknown hook '{name}'{nearest(name, known)}"
    return None


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "?"
