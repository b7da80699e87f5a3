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
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import pluggy

from headtohead.errors import HeadToHeadError, describe, nearest, similar, similar_file, suggestion
from headtohead.plugins import hookspecs
from headtohead.plugins.process_state import unchanged_process
from headtohead.plugins.reads import Read, labelled_hashes, option_of
from headtohead.plugins.sources import MODULE, source_sha256
from headtohead.plugins.watched_reads import WatchedReads, code_of, require_declared
from headtohead.schema.roles import ROLES
from headtohead.schema.sections import is_path
from headtohead.synonyms import synonyms

if TYPE_CHECKING:
    from headtohead.plugins.attention import Attention
    from headtohead.plugins.dataset import Dataset
    from headtohead.plugins.entry import Entry
    from headtohead.plugins.masking import Masking
    from headtohead.plugins.positional import Positional
    from headtohead.plugins.recipe import Recipe

FOLDER = Path(str(resources.files("headtohead_plugins")))
BUILT_IN = (
    *(
        f"headtohead_plugins.{file.parent.name}.{file.stem}"
        for file in sorted(FOLDER.glob("*/[!_]*.py"))
    ),
    "headtohead_mlflow.entry",
    "headtohead_notebooks.embedding_softmax",
    "headtohead_notebooks.imported_runs",
    "headtohead_notebooks.notebook_pairs",
    "headtohead_notebooks.recipes",
    "headtohead_notebooks.sinusoidal_by_row",
)
"""Modules of the built-in plugins: every file in the folder of a family, MLflow, and those of the notebooks."""

FAMILY_BASES = {
    "positional": "headtohead.plugins.positional.Positional",
    "attention": "headtohead.plugins.attention.Attention",
    "masking": "headtohead.plugins.masking.Masking",
    "feed_forward": "headtohead.plugins.feed_forward.FeedForward",
    "norm": "headtohead.plugins.norm.Norm",
    "dataset": "headtohead.plugins.dataset.Dataset",
    "recipe": "headtohead.plugins.recipe.Recipe",
    "launcher": "headtohead.plugins.launcher.Launcher",
    "logger": "headtohead.plugins.logger.Logger",
}

WITH_SOURCE = ("positional", "attention", "masking", "feed_forward", "norm", "dataset")
"""Families whose code and files results depend on; the configuration of a recipe is part of the run hash."""

ENTRY_POINT_GROUP = "headtohead"

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")
MAX_NAME = 60
OWN = "headtohead"
"""The distribution of the built-in plugins."""


@dataclass(frozen=True)
class Registered:
    """An entry and its origin.

    ``source_sha256`` is the hash of the file that defines it. ``reads`` are the files and variables that it declares to
    read; they depend on its options, so that only `headtohead.config.entries.plugins_of` sets them.
    """

    family: str
    name: str
    entry: type[Entry]
    module: str
    distribution: str
    version: str
    source_sha256: str
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

    @property
    def is_built_in(self) -> bool:
        """Whether headtohead provides the entry."""
        return self.module in BUILT_IN


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
        modules |= {_module_of(plugin) for plugin in self.manager.get_plugins()}
        packages = {name.partition(".")[0] for name in modules}
        built_in = {
            name.partition(".")[0] for name in BUILT_IN
        }  # one launcher is in headtohead itself
        return describe(error, packages - built_in - {"headtohead"}, built_in)

    def find(self, family: str, name: str) -> Registered:
        """Return an entry.

        Raises:
            HeadToHeadError: If the name is unknown. The message suggests the nearest name.
        """
        known = self.entries[family]
        if name not in known:
            load = "; load a plugin file by plugins: [FILE] in the experiment file, or by --plugin FILE"
            hint = suggestion(name, known) or nearest(name, known) + load
            is_here = family in ("launcher", "logger") or any(
                own in known for own in synonyms(name)
            )
            names = [name] if is_here else [name, *synonyms(name)]
            if others := [
                f"{other}/{own}"
                for own in names
                for other in self.entries
                if own in self.entries[other]
            ]:
                hint = f"; did you mean {' or '.join(dict.fromkeys(others))}?"
            raise HeadToHeadError(f"unknown {family} '{name}'{hint}")
        return known[name]

    def check_command(self, found: Registered) -> str:
        """Return the command that checks the invariants of an entry, with its file if a file defines it."""
        path = Path(inspect.getfile(found.entry)).resolve()
        return f"h2h check {found.label}" + (
            f" --plugin {os.path.relpath(path)}" if path in self.files else ""
        )

    def all(self) -> Iterator[Registered]:
        """Yield every entry, family by family, in alphabetical order of names."""
        for family in FAMILY_BASES:
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

    def add_file(self, path: Path, source: bytes) -> None:
        """Execute the source of a plugin file and register its entries, unless it is installed or loaded already."""
        if path.resolve() in self.installed or self.files.get(path.resolve()) == source:
            return
        plugin, imported = _load_source(path, source)
        self.add(plugin, str(path), "file", "-", imported)
        log.info("loaded plugin file %s, sha256 %s", path, hashlib.sha256(source).hexdigest())
        self.files[path.resolve()] = source

    def add_module(self, name: str) -> None:
        """Import a module by its name and register its entries; installed plugins are registered already.

        Raises:
            HeadToHeadError: If the module does not exist, fails to import or is no plugin.
        """
        if self.manager.has_plugin(name):
            return
        with _importing(name, "module", name) as imported:
            plugin = importlib.import_module(name)
        owner = _owner(name.partition(".")[0])
        self.add(plugin, name, owner, "-" if owner == "module" else _version(owner), imported)
        self.modules.append(name)

    def add_object(self, plugin: object) -> None:
        """Register a module or object from Python, replacing an object of the same name.

        The name has the module and the class of an object. A notebook cell that is executed again
        defines a class of the same name. A plugin that is built in, installed, or loaded by its file
        or import name keeps its registration.

        Raises:
            HeadToHeadError: As in ``add``. The earlier object then stays registered.
        """
        loaded = [known for _, known in self.manager.list_name_plugin() if known is plugin]
        if loaded and not any(known is plugin for known in self.objects):
            return
        name = _module_of(plugin)
        if not isinstance(plugin, ModuleType):
            name += f":{getattr(plugin, '__qualname__', type(plugin).__qualname__)}"
        replaced = self.manager.get_plugin(name)
        self.add(plugin, name, "python", "-")
        self.objects[:] = [
            registered for registered in self.objects if registered is not replaced
        ] + [plugin]

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
        where = f"plugin '{name}' ({distribution})"
        if distribution == OWN:
            new = list(_entries_of(plugin, name, distribution, version, where))
        else:
            module = _module_of(plugin)
            with unchanged_process(where, module), WatchedReads(code_of(module)) as registering:
                new = list(_entries_of(plugin, name, distribution, version, where))
            for watch in filter(None, (imported, registering)):
                _require_declared(new, watch)
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
            if "entry_name" not in vars(
                entry.entry
            ):  # a class registered twice keeps its first name
                entry.entry.entry_name = entry.name
            self.entries[entry.family][entry.name] = entry


def _module_of(plugin: object) -> str:
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    return str(getattr(plugin, "__module__", type(plugin).__module__))


def _check_hooks(plugin: object, where: str) -> None:
    """Raise if a plugin implements no hook, or a hook or one of its arguments is unknown."""
    with _named(f"{where}: reading its hooks raised", _module_of(plugin)):
        attributes = {name: getattr(plugin, name, None) for name in dir(plugin)}
        hooks = {
            name: inspect.signature(hook)  # type: ignore[arg-type]
            for name, hook in attributes.items()
            if hasattr(hook, "headtohead_impl")
        }
    known = {
        name: hook
        for name, hook in vars(hookspecs).items()
        if name.startswith(("register_", "on_"))
    }
    if not hooks:
        raise HeadToHeadError(
            f"{where}: it implements no hook; decorate a function such as register_positionals "
            "with @headtohead.plugin.hookimpl"
        )
    for name, signature in hooks.items():
        if name not in known:
            raise HeadToHeadError(f"{where}: unknown hook '{name}'{nearest(name, known)}")
        takes = list(inspect.signature(known[name]).parameters)
        for argument in signature.parameters.values():
            if argument.name not in takes and argument.default is argument.empty:
                raise HeadToHeadError(
                    f"{where}: hook '{name}' takes {', '.join(takes) or 'no arguments'}; got '{argument.name}'"
                )


def _entries_of(
    plugin: object, module: str, distribution: str, version: str, where: str
) -> Iterator[Registered]:
    _check_hooks(plugin, where)
    for family, path in FAMILY_BASES.items():
        hook, base = f"register_{family}s", pkgutil.resolve_name(path)
        if not hasattr(getattr(plugin, hook, None), "headtohead_impl"):
            continue
        with _named(f"{where}: {hook} raised", _module_of(plugin)):
            entries = getattr(plugin, hook)()
            items = list(entries.items()) if isinstance(entries, Mapping) else None
        if items is None:
            raise HeadToHeadError(
                f"{where}: {hook} returned {type(entries).__name__}; expected a mapping from name to class"
            )
        for name, entry in items:
            if not (isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name)):
                raise HeadToHeadError(
                    f"{where}: {hook} returned the name {name!r:.80}; a name is at most {MAX_NAME} letters and digits, "
                    "with single . _ - between them"
                )
            if not (isinstance(entry, type) and issubclass(entry, base)):
                got = (
                    entry.__name__
                    if isinstance(entry, type)
                    else f"an object of type {type(entry).__name__}"
                )
                raise HeadToHeadError(
                    f"{where}: {hook} returned {got} for '{name}'; expected a subclass of "
                    f"headtohead.plugin.{base.__name__}"
                )
            if (
                distribution != OWN
            ):  # building the options of all built-in entries takes a fifth of a second
                with _named(f"{where}: {family} '{name}' is invalid:", entry.__module__):
                    _check_class(cast("type[Entry]", entry))
                    _check_reads(family, cast("type[Entry]", entry))
                _check_methods(family, entry, base, f"{where}: {family} '{name}'")
            yield Registered(family, name, entry, module, distribution, version, source_hash(entry))


def _check_class(entry: type[Entry]) -> None:
    """Raise if a class attribute of an entry has a wrong type: a wrong property would switch an invariant off."""
    from headtohead.plugins.entry import Options

    if not (isinstance(entry.Options, type) and issubclass(entry.Options, Options)):
        raise TypeError(
            f"Options is {entry.Options!r}; expected a subclass of headtohead.plugin.Options"
        )
    entry.Options().model_dump_json()
    if not all(
        role in ROLES and isinstance(name, str) for role, name in entry.role_defaults.items()
    ):
        raise TypeError(
            f"role_defaults is {entry.role_defaults!r}; expected names by role: {', '.join(ROLES)}"
        )
    config, splits = getattr(entry, "config", {}), getattr(entry, "splits", ("",))
    if not isinstance(config, Mapping):
        raise TypeError(f"config is {config!r}; expected a mapping")
    if not (splits and all(isinstance(split, str) for split in splits)):
        raise TypeError(f"splits is {splits!r}; expected at least one name")
    properties = getattr(entry, "properties", None) or frozenset()
    if not isinstance(properties, Set):
        raise TypeError(f"properties is {properties!r}; expected a frozenset of names")
    for name in sorted(map(str, properties - entry.known_properties)):
        raise TypeError(
            f"properties has the unknown name '{name}'{nearest(name, entry.known_properties)}"
        )


def _check_reads(family: str, entry: type[Entry]) -> None:
    """Raise if ``reads`` is not a tuple of names, or names an unknown option, or an option is marked in vain."""
    reads, fields = entry.reads, entry.Options.model_fields
    if not isinstance(reads, tuple) or not all(isinstance(name, str) and name for name in reads):
        raise TypeError(f'reads is {reads!r}; expected a tuple of names such as ("scale.json",)')
    for name in reads:
        option = option_of(name)
        if option is not None and option not in fields:
            raise TypeError(
                f"reads has '{name}', but Options has no '{option}'{nearest(option, fields)}"
            )
    if family == "dataset":
        return
    for name, info in fields.items():
        if is_path(info):
            raise TypeError(
                f"the option '{name}' is marked by FilePath, which is for datasets; remove the mark, and add to the "
                f'class: reads = ("{{{name}}}",)'
            )


def _check_methods(family: str, entry: type[Entry], base: type[Entry], where: str) -> None:
    """Raise if a method of an entry is not called by the core, or cannot be called with the core's arguments.

    A misspelt hook would not be called, and its entry would train as the base class.
    """
    known = {
        name: value
        for cls in reversed(base.__mro__)
        if cls.__module__.startswith("headtohead.")
        for name, value in vars(cls).items()
        if not name.startswith("_") and inspect.isroutine(getattr(value, "__func__", value))
    }
    for cls in entry.__mro__[: entry.__mro__.index(base)]:
        for name, value in {} if cls.__module__ in BUILT_IN else vars(cls).items():
            function = getattr(value, "__func__", value)
            if name.startswith("_") or not inspect.isroutine(function):
                continue
            if name in known:
                takes = list(
                    inspect.signature(getattr(known[name], "__func__", known[name])).parameters
                )
                is_class_method = isinstance(known[name], classmethod)
                is_bound = isinstance(value, staticmethod) and not isinstance(
                    known[name], staticmethod
                )
                try:
                    bound = inspect.signature(function).bind(*takes[is_bound:]).arguments
                    if is_class_method and not isinstance(value, classmethod | staticmethod):
                        raise TypeError
                    if any(
                        own != given and own in takes
                        for own, given in bound.items()
                        if isinstance(given, str)
                    ):
                        raise TypeError  # the arguments are passed in another order
                except TypeError:
                    decorated = "@classmethod def" if is_class_method else "def"
                    raise HeadToHeadError(
                        f"{where}: write '{decorated} {name}({', '.join(takes)})'; "
                        f"got {name}{inspect.signature(function)}"
                    ) from None
            elif base.hooks and (name == "forward" or not hasattr(base, name)):
                hooks = (
                    f"; {family} has {', '.join(base.hooks)}; start the name of a helper with '_'"
                )
                raise HeadToHeadError(
                    f"{where}: unknown hook '{name}'{similar(name, known) or hooks}"
                )


def require_override(registered: Registered) -> None:
    """Raise if an external entry overrides no hook of its family, and so computes the same as the base class."""
    base = pkgutil.resolve_name(FAMILY_BASES[registered.family])
    used = {
        inspect.getattr_static(registered.entry, hook) is inspect.getattr_static(base, hook)
        for hook in base.hooks
    }
    if used == {True} and not registered.is_built_in:
        raise HeadToHeadError(
            f"{registered.label} overrides no hook, so it computes the same as its base class; override one of "
            f"{', '.join(base.hooks)}, or use the built-in entry"
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
    manager = pluggy.PluginManager("headtohead")
    manager.add_hookspecs(hookspecs)
    registry = Registry(manager, {family: {} for family in FAMILY_BASES})
    version = _version(OWN)
    for module in BUILT_IN:
        registry.add(importlib.import_module(module), module, OWN, version)
    try:
        points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
        found = [
            (point, getattr(point.dist, "name", "?"), getattr(point.dist, "version", "?"))
            for point in points
        ]
    except Exception as error:  # a text that is no entry-point file, or metadata without a name
        raise HeadToHeadError(
            f"cannot read the entry points of installed packages: {describe(error)}"
        ) from error
    for point, distribution, version in found:
        with _importing(point.value, distribution, point.value.partition(":")[0]) as imported:
            plugin = point.load()
        registry.add(plugin, point.value, distribution, version, imported)
        if file := getattr(plugin, "__file__", None):
            registry.installed.add(Path(file).resolve())
    return registry


_current: Registry | None = None


def current() -> Registry:
    """Return the registry of this process; built-ins and entry points are loaded at first use."""
    global _current
    if _current is None:
        _current = load_registry()
    return _current


def registered(family: str, name: str, /) -> Any:
    """Return the class of a registered entry, for plugins that build on other entries.

    Raises:
        HeadToHeadError: If the name is unknown. The message suggests the nearest name.
    """
    return current().find(family, name).entry


def use_files(paths: Iterable[Path]) -> Registry:
    """Add plugin files and all plugin files of folders to the registry of this process."""
    return use_sources((file, _read(file)) for path in paths for file in plugin_files(path))


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


def plugin_files(path: Path) -> list[Path]:
    """Return a plugin file, or the plugin files of a folder: ``*.py`` except ``_*.py`` and tests."""
    if not path.is_dir():
        return [path]
    files = sorted(
        file for file in path.glob("*.py") if not file.name.startswith(("_", "test_", "conftest."))
    )
    if not files:
        raise HeadToHeadError(
            f"plugin folder '{path}' has no plugin file; name a Python file, or a folder of them"
        )
    return files


def register(plugin: object) -> None:
    """Register a module or object as a plugin, for this process and the workers that it starts.

    It replaces an earlier plugin of the same class name (or ``__name__``), so that a notebook cell
    can be executed again. A built-in, installed or loaded plugin keeps its registration.

    Raises:
        HeadToHeadError: If a hook is misspelt, raises or returns no entries, or if a name is taken.
            The registry is then unchanged, and an earlier plugin stays registered.
    """
    current().add_object(plugin)


def _read(path: Path) -> bytes:
    if not path.exists():
        raise HeadToHeadError(f"plugin file '{path}' does not exist{similar_file(path, '.py')}")
    if not path.is_file() or path.suffix != ".py":
        raise HeadToHeadError(
            f"plugin file '{path}' is not a regular file with a name that ends in .py"
        )
    return path.read_bytes()


def _require_declared(entries: Iterable[Registered], watch: WatchedReads) -> None:
    """Raise if an entry that results depend on does not declare what its plugin has read."""
    for registered in entries:
        if registered.family in WITH_SOURCE:
            require_declared(registered.entry, registered.entry.Options(), watch)


def _load_source(path: Path, source: bytes) -> tuple[ModuleType, WatchedReads]:
    """Execute the source of a plugin file and return what it read; the file itself may have changed or be missing."""
    name = f"headtohead_file_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        with _importing(str(path), "file", name) as imported:
            exec(compile(source, str(path), "exec"), module.__dict__)
            # Tracebacks and inspect then show the executed source, not the current content of the file.
            lines = importlib.util.decode_source(source).splitlines(keepends=True)
            linecache.cache[str(path)] = (len(source), None, lines, str(path))
    except HeadToHeadError:
        del sys.modules[name]
        raise
    return module, imported


@contextmanager
def _importing(label: str, distribution: str, module: str) -> Iterator[WatchedReads]:
    """Name the plugin whose import fails or changes what all variants share; return what the import reads."""
    where = f"plugin '{label}' ({distribution})"
    watch = WatchedReads(code_of(module))
    with unchanged_process(where, module), _named(f"{where} failed to import:", module), watch:
        yield watch


@contextmanager
def _named(failure: str, module: str) -> Iterator[None]:
    """Turn any exception of a plugin's code, ``sys.exit`` too, into an error that starts with ``failure``."""
    try:
        yield
    except BaseException as error:
        raise HeadToHeadError(f"{failure} {describe(error, [module.partition('.')[0]])}") from error


def _owner(package: str) -> str:
    """Return the distribution that has installed a package or module of this name, else ``module``.

    A search of the lists of files: ``packages_distributions`` parses all of them, which takes a second.
    """
    file = re.compile(rf"^{re.escape(package)}(/|\.py,)", re.MULTILINE)
    for found in importlib.metadata.distributions():
        if package in (found.read_text("top_level.txt") or "").split() or file.search(
            found.read_text("RECORD") or ""
        ):
            return found.name
    return "module"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "?"
