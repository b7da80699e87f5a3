"""headtohead runs Transformer variants head to head.

The public names are what Python users call; authors of plugins import from ``headtohead.plugin``. They are resolved at
first use, so that importing the package costs nothing.
"""

import importlib
import sys

# Python searches the working directory first for the imports of `python -m headtohead.cli`, even of `typing`.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and any(word.startswith("headtohead.") for word in sys.orig_argv):
    sys.path.pop(0)

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headtohead import plugin as plugin
    from headtohead.analysis.judge import judge as judge
    from headtohead.api import curves as curves
    from headtohead.api import export as export
    from headtohead.api import load as load
    from headtohead.api import plan as plan
    from headtohead.api import results as results
    from headtohead.api import run as run
    from headtohead.api import write_report as write_report
    from headtohead.errors import HeadToHeadError as HeadToHeadError
    from headtohead.plugins.registry import register as register
    from headtohead.plugins.registry import registered as registered

_NAMES = {
    "headtohead.analysis.judge": "judge",
    "headtohead.api": "curves export load plan results run write_report",
    "headtohead.errors": "HeadToHeadError",
    "headtohead.plugins.registry": "register registered",
}
"""The public names by module, separated by spaces."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "plugin":
        return importlib.import_module("headtohead.plugin")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headtohead' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names alone: what completion should offer."""
    return sorted(__all__)
