"""Names of a module that are imported at first use.

A module with such names has a mapping from name to home module, and a ``__getattr__`` that calls `import_name`
(PEP 562). It repeats the imports in a block ``if TYPE_CHECKING`` for type checkers; a test compares both.
"""

TYPE_CHECKING = (
    False  # true for type checkers; importing it from `typing` would delay the handling of Ctrl-C
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def import_name(module: str, name: str, modules: "Mapping[str, str]") -> object:
    """Return a name of a module from its home module.

    Args:
        module: The module that offers the name.
        name: The name.
        modules: The home module of each name.

    Raises:
        AttributeError: If ``modules`` lacks the name.
    """
    if name not in modules:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    from importlib import import_module

    value: object = getattr(import_module(modules[name]), name)
    return value
