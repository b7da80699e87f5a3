"""The registry: loads plugins and finds their entries by family and name.

Plugins come from the folders of ``headtohead_plugins``, from installed entry points of the group
``headtohead``, from ``plugins`` in an experiment file, from ``--plugin`` and from
``headtohead.register``. All are registered the same way.

A process has one registry, which `current` returns. The fork server of the workers loads the built-ins and the
installed plugins, and each worker then registers the plugin sources and objects that it receives. Two plugins cannot
register the same name; only a plugin that is loaded again, such as a notebook's cell that is executed a second time or
a file that has changed meanwhile, replaces its earlier entries.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import linecache
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pluggy

from headtohead.errors import (
    HeadToHeadError,
    PluginError,
    describe,
    is_disk_error,
    machine_limit,
    nearest,
    suggestion,
)
from headtohead.plugins.built_in import DISTRIBUTION, MODULES
from headtohead.plugins.entry_checks import entries_of, module_of
from headtohead.plugins.families import CHECKED_FAMILIES, FAMILIES
from headtohead.plugins.hookspecs import plugin_manager
from headtohead.plugins.importing import (
    distribution_of,
    import_source,
    importing,
    plugin_files,
    read_source,
    version_of,
)
from headtohead.plugins.process_state import unchanged_process
from headtohead.plugins.reads import Read, labelled_hashes
from headtohead.plugins.sources import MODULE, source_sha256
from headtohead.plugins.watched_reads import (
    WatchedReads,
    code_of,
    hashed_files,
    module_files,
    require_declared,
)
from headtohead.synonyms import synonyms

if TYPE_CHECKING:
    from headtohead.plugins.attention import Attention
    from headtohead.plugins.dataset import Dataset
    from headtohead.plugins.entry import Entry
    from headtohead.plugins.masking import Masking
    from headtohead.plugins.positional import Positional
    from headtohead.plugins.recipe import Recipe
    from headtohead.plugins.schedule import Schedule

ENTRY_POINT_GROUP = "headtohead"

log = logging.getLogger(__name__)

AnyEntry = TypeVar("AnyEntry", bound="Entry")


@dataclass(frozen=True)
class Registered:
    """An entry and its origin.

    ``is_built_in`` is whether headtohead provides it, ``source_sha256`` the hash of the file that defines it. ``reads``
    are the files and variables that it declares to read; they depend on its options, so that only
    `headtohead.config.entries.plugins_of` sets them.
    """

    family: str
    name: str
    entry: type[Entry]
    module: str
    distribution: str
    version: str
    source_sha256: str
    is_built_in: bool
    reads: tuple[Read, ...] = ()

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes of the source and of what the entry reads, as `labelled_hashes` returns them."""
        reads = [(read.name, read.sha256) for read in self.reads]
        return labelled_hashes(self.family, self.name, self.source_sha256, reads)

    @property
    def label(self) -> str:
        """``family/name``, which identifies an entry."""
        return f"{self.family}/{self.name}"


FILE = "file"
"""The distribution of the entries of a plugin file."""


@dataclass
class Registry:
    """All entries of a process, by family and name."""

    manager: pluggy.PluginManager
    entries: dict[str, dict[str, Registered]] = field(default_factory=dict)
    files: dict[Path, bytes] = field(default_factory=dict)
    """Source of each plugin file that was loaded, by its resolved path."""
    installed: set[Path] = field(default_factory=set)
    """Files of installed plugins; such a file is not loaded a second time."""
    modules: list[str] = field(default_factory=list)
    """Import names of the plugins that an experiment file selected."""
    objects: list[object] = field(default_factory=list)

    def describe(self, error: BaseException) -> str:
        """Return an error as a single line, with its location in the plugin that raised it.

        A frame in an external plugin takes precedence over a frame in a built-in plugin.
        """
        modules = {entry.entry.__module__ for entry in self.all()}
        modules |= {module_of(plugin) for plugin in self.manager.get_plugins()}
        packages = {name.partition(".")[0] for name in modules}
        built_in = {name.partition(".")[0] for name in MODULES}
        outside = packages - built_in - {"headtohead"}  # one launcher is in headtohead itself
        return describe(error, outside, built_in)

    def find(self, family: str, name: str) -> Registered:
        """Return an entry.

        Raises:
            HeadToHeadError: If the name is unknown. The message suggests the nearest name.
        """
        registered = self.entries[family].get(name)
        if registered is None:
            raise HeadToHeadError(f"unknown {family} '{name}'{self._hint(family, name)}")
        return registered

    def _hint(self, family: str, name: str) -> str:
        """Return where an unknown name exists, else the nearest name of the family and how to load a plugin."""
        entries_of_family = self.entries[family]
        names = [name]
        translated = synonyms(name)
        if FAMILIES[family].place and not any(
            synonym in entries_of_family for synonym in translated
        ):
            names += translated
        labels = []
        for wanted in names:
            for other_family, entries in self.entries.items():
                if wanted in entries:
                    labels.append(f"{other_family}/{wanted}")
        if labels:
            return f"; did you mean {' or '.join(dict.fromkeys(labels))}?"
        nearby = suggestion(name, entries_of_family)
        if nearby:
            return nearby
        load = "; load a plugin file by plugins: [FILE] in the experiment file, or by --plugin FILE"
        return nearest(name, entries_of_family) + load

    def check_command(self, registered: Registered) -> str:
        """Return the command that checks the invariants of an entry, with its file if a file defines it.

        Entries without invariants of their own, such as quirks, are checked with the experiment that uses them.
        """
        if registered.family not in CHECKED_FAMILIES:
            return "h2h check FILE.yaml"
        command = f"h2h check {registered.label}"
        path = Path(inspect.getfile(registered.entry)).resolve()
        if path in self.files:
            return f"{command} --plugin {os.path.relpath(path)}"
        return command

    def failure(self, plugins: Iterable[Registered], error: Exception) -> str:
        """Return the text of an error in the code of one of some entries, with the command that tests the first."""
        by_label = {entry.label: entry for entry in plugins}
        labels = sorted(by_label)
        command = self.check_command(by_label[labels[0]])
        text = f"{' and '.join(labels)} fails: "
        advice = f"; correct the plugin, and test it with '{command}'"
        if isinstance(error, HeadToHeadError):
            return f"{text}{error}{advice}"
        return f"{text}{self.describe(error)}{advice} (h2h -v prints the traceback)"

    def all(self) -> Iterator[Registered]:
        """Yield every entry, family by family, in alphabetical order of names."""
        for family in FAMILIES:
            for name in sorted(self.entries[family]):
                yield self.entries[family][name]

    def add_file(self, path: Path, source: bytes) -> None:
        """Execute the source of a plugin file and register its entries, unless it is installed or loaded already."""
        if path.resolve() in self.installed or self.files.get(path.resolve()) == source:
            return
        plugin, imported = import_source(path, source)
        self.add(plugin, str(path), FILE, "-", imported)
        log.info("loaded plugin file %s, sha256 %s", path, hashlib.sha256(source).hexdigest())
        self.files[path.resolve()] = source

    def add_module(self, name: str) -> None:
        """Import a module by its name and register its entries; installed plugins are registered already.

        Raises:
            HeadToHeadError: If the module does not exist, fails to import or is no plugin.
        """
        if self.manager.has_plugin(name):
            return
        with importing(name, "module", name) as imported:
            plugin = importlib.import_module(name)
        distribution = distribution_of(name.partition(".")[0])
        version = "-" if distribution == "module" else version_of(distribution)
        self.add(plugin, name, distribution, version, imported)
        self.modules.append(name)

    def add_object(self, plugin: object) -> None:
        """Register a module or object from Python, replacing an object of the same name.

        The name has the module and the class of an object. A notebook cell that is executed again
        defines a class of the same name. A plugin that is built in, installed, or loaded by its file
        or import name keeps its registration.

        Raises:
            HeadToHeadError: As in ``add``. The earlier object then stays registered.
        """
        loaded = [loaded for _, loaded in self.manager.list_name_plugin() if loaded is plugin]
        if loaded and not any(registered is plugin for registered in self.objects):
            return
        name = module_of(plugin)
        if not isinstance(plugin, ModuleType):
            name += f":{getattr(plugin, '__qualname__', type(plugin).__qualname__)}"
        replaced = self.manager.get_plugin(name)
        self.add(plugin, name, "python", "-")
        kept = [registered for registered in self.objects if registered is not replaced]
        self.objects[:] = [*kept, plugin]

    def add(
        self,
        plugin: object,
        name: str,
        distribution: str,
        version: str,
        imported: WatchedReads | None = None,
    ) -> None:
        """Register a module or object that implements hooks, and its entries.

        ``imported`` has what was read while the plugin was imported.

        Raises:
            HeadToHeadError: If a hook is misspelt, raises or returns no entries, if an entry does not declare what its
                plugin reads, or if a name is taken. The registry is then unchanged.
        """
        new = self._checked_entries(plugin, name, distribution, version, imported)
        for entry in new:
            other = self.entries[entry.family].get(entry.name)
            if other is not None and other.module != name:
                raise HeadToHeadError(
                    f"two plugins register {entry.family} '{entry.name}': {other.module} "
                    f"({other.distribution}) and {name} ({distribution}); rename one of them"
                )
        if self.manager.has_plugin(name):
            self.manager.unregister(name=name)
            for entry in [entry for entry in self.all() if entry.module == name]:
                del self.entries[entry.family][entry.name]
        self.manager.register(plugin, name=name)
        for entry in new:
            # A class that is registered under two names keeps the first.
            if "entry_name" not in vars(entry.entry):
                entry.entry.entry_name = entry.name
            self.entries[entry.family][entry.name] = entry

    def _checked_entries(
        self,
        plugin: object,
        module: str,
        distribution: str,
        version: str,
        imported: WatchedReads | None,
    ) -> list[Registered]:
        """Return the entries of a plugin after the checks of their classes, hooks and reads."""
        where = f"plugin '{module}' ({distribution})"
        is_own = distribution == DISTRIBUTION
        watches = [] if imported is None else [imported]
        if is_own:
            registrations = entries_of(plugin, where, is_own=True)
        else:
            defined_in = module_of(plugin)
            with (
                unchanged_process(where, defined_in),
                WatchedReads(code_of(defined_in)) as registering,
            ):
                registrations = entries_of(plugin, where, is_own=False)
            watches.append(registering)
        entries = []
        sources = module_files(module_of(plugin))
        for _, _, entry in registrations:
            sources |= hashed_files(entry)
        for family, name, entry in registrations:
            for watch in watches:
                if family.affects_results:
                    require_declared(entry, entry.Options(), watch, sources=sources)
            entries.append(
                Registered(
                    family=family.name,
                    name=name,
                    entry=entry,
                    module=module,
                    distribution=distribution,
                    version=version,
                    source_sha256=source_hash(entry),
                    is_built_in=module in MODULES,
                )
            )
        return entries


def require_override(registered: Registered) -> None:
    """Raise if an external entry overrides no hook of its family, and so computes the same as the base class."""
    if registered.is_built_in:
        return
    base = FAMILIES[registered.family].base_class
    for hook in base.hooks:
        inherited = inspect.getattr_static(base, hook)
        if inspect.getattr_static(registered.entry, hook) is not inherited:
            return
    if base.hooks:
        hooks = ", ".join(base.hooks)
        raise HeadToHeadError(
            f"{registered.label} overrides no hook, so it computes the same as its base class; override one of "
            f"{hooks}, or use the built-in entry"
        )


def source_hash(entry: type) -> str:
    """Return the `source_sha256` of the file that defines ``entry``, else a hash of its notebook cell or its name."""
    path = getattr(sys.modules.get(entry.__module__), "__file__", None)
    if path and Path(path).is_file():
        return source_sha256(Path(path))
    name = f"{entry.__module__}.{entry.__qualname__}"
    return hashlib.sha256(f"{name}\n{_cell(entry)}".encode()).hexdigest()


def _cell(entry: type) -> str:
    """Return the source of the notebook cell that defines a class, or an empty text."""
    for value in vars(entry).values():
        code = getattr(inspect.unwrap(getattr(value, "__func__", value)), "__code__", None)
        if code is not None:
            return "".join(linecache.getlines(code.co_filename))
    return ""


def load_registry() -> Registry:
    """Return a new registry of built-ins and installed entry points.

    Raises:
        HeadToHeadError: If a plugin cannot be imported, misspells a hook, or uses a taken name.
    """
    registry = Registry(plugin_manager(), {family: {} for family in FAMILIES})
    version = version_of(DISTRIBUTION)
    for module in MODULES:
        registry.add(importlib.import_module(module), module, DISTRIBUTION, version)
    for value, load, distribution, version in _entry_points():
        with importing(value, distribution, value.partition(":")[0]) as imported:
            plugin = load()
        registry.add(plugin, value, distribution, version, imported)
        file = getattr(plugin, "__file__", None)
        if file:
            registry.installed.add(Path(file).resolve())
    return registry


def _entry_points() -> list[tuple[str, Callable[[], object], str, str]]:
    """Return the plugins of installed packages: import path, function that loads it, distribution and version."""
    plugins = []
    try:
        for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            name, version = getattr(point.dist, "name", "?"), getattr(point.dist, "version", "?")
            plugins.append((point.value, point.load, name, version))
    except Exception as error:  # a text that is no entry-point file, or metadata without a name
        raise HeadToHeadError(
            f"cannot read the entry points of installed packages: {describe(error)}"
        ) from error
    return plugins


_current: Registry | None = None


def current() -> Registry:
    """Return the registry of this process; built-ins and entry points are loaded at first use."""
    global _current
    if _current is None:
        _current = load_registry()
    return _current


def find_entry(family: str, name: str) -> Registered:
    """Return an entry of the registry of this process; it and the functions below raise as `Registry.find`."""
    return current().find(family, name)


def find_entries(named: Iterable[tuple[str, str]]) -> list[Registered]:
    """Return the entries with these families and names."""
    registry = current()
    return [registry.find(family, name) for family, name in named]


@contextmanager
def calling(entry: type[Entry]) -> Iterator[None]:
    """Turn an error of a plugin into a `PluginError` while the block calls the plugin's class or its object.

    Unchanged are the errors of built-in entries, errors of the disk and of the limits of the machine, and
    `HeadToHeadError`, by which a plugin refuses its options or its model.

    Raises:
        PluginError: In place of any other error of a registered entry that is not built in.
    """
    try:
        yield
    except HeadToHeadError:
        raise
    except Exception as error:
        if is_disk_error(error, of_plugin=True) or machine_limit(error):
            raise
        for registered in current().all():
            if registered.entry is entry and not registered.is_built_in:
                raise PluginError(current().failure([registered], error)) from error
        raise


def construct(entry: type[AnyEntry], *arguments: Any) -> AnyEntry:
    """Return a new object of an entry's class.

    Raises:
        HeadToHeadError: If the constructor raises it, or any other error in a plugin (see `calling`).
    """
    with calling(entry):
        return entry(*arguments)


def find_positional(name: str) -> type[Positional]:
    """Return the class of a positional encoding."""
    return cast("type[Positional]", current().find("positional", name).entry)


def find_attention(name: str) -> type[Attention]:
    """Return the class of an attention style."""
    return cast("type[Attention]", current().find("attention", name).entry)


def find_masking(name: str) -> type[Masking]:
    """Return the class of a masking scheme."""
    return cast("type[Masking]", current().find("masking", name).entry)


def find_schedule(name: str) -> type[Schedule]:
    """Return the class of a learning-rate schedule."""
    return cast("type[Schedule]", current().find("schedule", name).entry)


def find_dataset(name: str) -> type[Dataset]:
    """Return the class of a dataset."""
    return cast("type[Dataset]", current().find("dataset", name).entry)


def find_recipe(name: str) -> type[Recipe]:
    """Return the class of a recipe."""
    return cast("type[Recipe]", current().find("recipe", name).entry)


def registered(family: str, name: str, /) -> Any:
    """Return the class of a registered entry, for plugins that build on other entries.

    Raises:
        HeadToHeadError: If the name is unknown. The message suggests the nearest name.
    """
    return current().find(family, name).entry


def use_files(paths: Iterable[Path]) -> Registry:
    """Add plugin files and all plugin files of folders to the registry of this process."""
    return use_sources((file, read_source(file)) for path in paths for file in plugin_files(path))


def use_sources(sources: Iterable[tuple[Path, bytes]]) -> Registry:
    """Add plugin files, given as path and source, to the registry of this process.

    A file whose source has changed is loaded again.
    """
    for path, source in sources:
        current().add_file(path, source)
    return current()


def use_named(name: str, folder: Path) -> Registry:
    """Add a plugin of an experiment file to the registry of this process.

    Args:
        name: Path of a file or folder, relative to ``folder``; or the import name of an installed module.
        folder: Folder of the experiment file.
    """
    path, package = folder / name, name.partition(".")[0]
    if path.exists() or name.endswith(".py") or not MODULE.fullmatch(name):
        return use_files([path])
    if importlib.util.find_spec(package) is None:
        raise HeadToHeadError(
            f"no plugin file or folder '{path}', and no installed package '{package}'"
        )
    current().add_module(name)
    return current()


def register(plugin: object) -> None:
    """Register a module or object as a plugin, for this process and the workers that it starts.

    It replaces an earlier plugin of the same class name (or ``__name__``), so that a notebook cell
    can be executed again. A built-in, installed or loaded plugin keeps its registration.

    Raises:
        HeadToHeadError: If a hook is misspelt, raises or returns no entries, or if a name is taken.
            The registry is then unchanged, and an earlier plugin stays registered.
    """
    current().add_object(plugin)
