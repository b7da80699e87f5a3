"""Checks of a plugin when it is registered: its hooks, the entries that they return, and the classes of the entries.

A hook that is misspelt would not be called, and its entry would train as the base class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from headtohead.errors import HeadToHeadError, describe, nearest, similar
from headtohead.plugins.built_in import MODULES
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.entry import Entry
from headtohead.plugins.families import REGISTERED_BY, Family
from headtohead.plugins.hookspecs import HOOKS
from headtohead.plugins.reads import option_of
from headtohead.schema.phrases import slots
from headtohead.schema.sections import is_path

MAX_NAME = 60
"""Maximum number of characters of the name of an entry."""

_NAME = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")


def entries_of(
    plugin: object, where: str, *, is_own: bool
) -> list[tuple[Family, str, type[Entry]]]:
    """Return family, name and class of every entry that the hooks of a plugin return.

    Args:
        plugin: The module or object with the hooks.
        where: The plugin in messages.
        is_own: Whether the plugin is built in. Its classes are not checked, since building the options of all built-in
            entries takes a fifth of a second.

    Raises:
        HeadToHeadError: If a hook or a method is misspelt, raises or returns something else.
    """
    implemented = _known_hooks(plugin, where)
    entries = []
    for hook, family in REGISTERED_BY.items():
        if hook not in implemented:
            continue
        for name, entry in _returned_entries(plugin, hook, family.base_class, where):
            if not is_own:
                _require_valid(family, name, entry, where)
            entries.append((family, name, entry))
    return entries


def is_hook(function: object) -> bool:
    """Return whether a function is decorated with ``hookimpl``."""
    return hasattr(function, "headtohead_impl")


def module_of(plugin: object) -> str:
    """Return the name of a plugin that is a module, or of the module that defines it."""
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    return str(getattr(plugin, "__module__", type(plugin).__module__))


@contextmanager
def named_failure(failure: str, module: str) -> Iterator[None]:
    """Turn any exception of a plugin's code, ``sys.exit`` too, into an error that starts with ``failure``."""
    try:
        yield
    except BaseException as error:
        raise HeadToHeadError(f"{failure} {describe(error, [module.partition('.')[0]])}") from error


def _known_hooks(plugin: object, where: str) -> set[str]:
    """Return the names of the hooks that a plugin implements.

    Raises:
        HeadToHeadError: If it implements no hook, or a hook or one of its arguments is unknown.
    """
    signatures = {}
    with named_failure(f"{where}: reading its hooks raised", module_of(plugin)):
        attributes = {name: getattr(plugin, name, None) for name in dir(plugin)}
        for name, function in attributes.items():
            if is_hook(function):
                signatures[name] = inspect.signature(function)  # type: ignore[arg-type]
    if not signatures:
        raise HeadToHeadError(
            f"{where}: it implements no hook; decorate a function such as register_positionals "
            "with @headtohead.plugin.hookimpl"
        )
    for name, signature in signatures.items():
        if name not in HOOKS:
            raise HeadToHeadError(f"{where}: unknown hook '{name}'{nearest(name, HOOKS)}")
        allowed = list(inspect.signature(HOOKS[name]).parameters)
        for argument in signature.parameters.values():
            if argument.name not in allowed and argument.default is argument.empty:
                takes = ", ".join(allowed) or "no arguments"
                raise HeadToHeadError(
                    f"{where}: hook '{name}' takes {takes}; got '{argument.name}'"
                )
    return set(signatures)


def _returned_entries(
    plugin: object, hook: str, base: type[Entry], where: str
) -> Iterator[tuple[str, type[Entry]]]:
    """Yield name and class of each entry that a plugin's hook returns; the classes are subclasses of ``base``."""
    with named_failure(f"{where}: {hook} raised", module_of(plugin)):
        returned = getattr(plugin, hook)()
        items = list(returned.items()) if isinstance(returned, Mapping) else None
    if items is None:
        raise HeadToHeadError(
            f"{where}: {hook} returned {type(returned).__name__}; expected a mapping from name to class"
        )
    for name, entry in items:
        if not (isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name)):
            raise HeadToHeadError(
                f"{where}: {hook} returned the name {name!r:.80}; a name is at most {MAX_NAME} letters and digits, "
                "with single . _ - between them"
            )
        if not isinstance(entry, type):
            got = f"an object of type {type(entry).__name__}"
        elif not issubclass(entry, base):
            got = entry.__name__
        else:
            yield name, entry
            continue
        raise HeadToHeadError(
            f"{where}: {hook} returned {got} for '{name}'; expected a subclass of headtohead.plugin.{base.__name__}"
        )


def _require_valid(family: Family, name: str, entry: type[Entry], where: str) -> None:
    """Raise if an attribute or a method of an entry's class is not what its family requires."""
    with named_failure(f"{where}: {family.name} '{name}' is invalid:", entry.__module__):
        entry.require_valid()
        require_valid_phrase(entry)
        _require_valid_reads(entry)
    base = family.base_class
    core_methods = _methods_of_the_core(base)
    for cls in entry.__mro__[: entry.__mro__.index(base)]:
        if cls.__module__ in MODULES:
            continue
        for method_name, method in vars(cls).items():
            if method_name.startswith("_") or not inspect.isroutine(_function(method)):
                continue
            if method_name in core_methods:
                message = _wrong_signature(method_name, method, core_methods[method_name])
            elif base.hooks and (method_name == "forward" or not hasattr(base, method_name)):
                message = _unknown_method(method_name, family, core_methods)
            else:
                continue
            if message:
                raise HeadToHeadError(f"{where}: {family.name} '{name}': {message}")


def require_valid_phrase(entry: type[Entry]) -> None:
    """Raise TypeError if ``phrase`` is no text or no template of options."""
    fields = entry.Options.model_fields
    try:
        unknown = [slot for slot in slots(entry.phrase) if slot not in fields]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"phrase is {entry.phrase!r}; expected text such as 'rotary', with options in braces"
        ) from error
    if unknown:
        raise TypeError(
            f"phrase is {entry.phrase!r}, but Options has no '{unknown[0]}'{nearest(unknown[0], fields)}"
        )


def _require_valid_reads(entry: type[Entry]) -> None:
    """Raise if ``reads`` is not a tuple of names, or names an unknown option, or an option is marked in vain."""
    fields = entry.Options.model_fields
    is_tuple = isinstance(entry.reads, tuple)
    if not is_tuple or not all(isinstance(name, str) and name for name in entry.reads):
        raise TypeError(
            f'reads is {entry.reads!r}; expected a tuple of names such as ("scale.json",)'
        )
    for name in entry.reads:
        option = option_of(name)
        if option is not None and option not in fields:
            raise TypeError(
                f"reads has '{name}', but Options has no '{option}'{nearest(option, fields)}"
            )
    if issubclass(entry, Dataset):
        return
    for name, info in fields.items():
        if is_path(info):
            raise TypeError(
                f"the option '{name}' is marked by FilePath, which is for datasets; remove the mark, and add to the "
                f'class: reads = ("{{{name}}}",)'
            )


def _methods_of_the_core(base: type[Entry]) -> dict[str, Any]:
    """Return the public methods of a base class, and of the classes of headtohead that it inherits from."""
    methods = {}
    for cls in reversed(base.__mro__):
        if cls.__module__.startswith("headtohead."):
            for name, method in vars(cls).items():
                if not name.startswith("_") and inspect.isroutine(_function(method)):
                    methods[name] = method
    return methods


def _wrong_signature(name: str, method: Any, expected: Any) -> str | None:
    """Return the message for a method that cannot be called with the arguments of the core, or None if it can."""
    arguments = list(inspect.signature(_function(expected)).parameters)
    passed = arguments
    if isinstance(method, staticmethod) and not isinstance(expected, staticmethod):
        passed = arguments[1:]  # a static method receives no object or class
    is_class_method = isinstance(expected, classmethod)
    if _accepts(_function(method), passed, arguments) and (
        not is_class_method or isinstance(method, classmethod | staticmethod)
    ):
        return None
    decorated = "@classmethod def" if is_class_method else "def"
    return f"write '{decorated} {name}({', '.join(arguments)})'; got {name}{inspect.signature(_function(method))}"


def _accepts(function: Callable[..., object], passed: list[str], arguments: list[str]) -> bool:
    """Return whether a function takes these arguments by position, and none of them under the name of another."""
    try:
        bound = inspect.signature(function).bind(*passed).arguments
    except TypeError:
        return False
    for parameter, argument in bound.items():
        if isinstance(argument, str) and parameter != argument and parameter in arguments:
            return False
    return True


def _unknown_method(name: str, family: Family, core_methods: Mapping[str, Any]) -> str:
    """Return the message for a public method that the core does not call."""
    hint = similar(name, core_methods)
    if not hint:
        hooks = ", ".join(family.base_class.hooks)
        hint = f"; {family.name} has {hooks}; start the name of a helper with '_'"
    return f"unknown hook '{name}'{hint}"


def _function(method: Any) -> Any:
    """Return the function of a class method or a static method; other attributes are unchanged."""
    return getattr(method, "__func__", method)
