"""Controlled comparisons of Transformer components.

The public names are what Python users call; authors of plugins import from ``headtohead.plugin``. They are resolved at
first use, so that importing the package costs nothing.
"""

import sys

# Python searches the working directory first for the imports of `python -m headtohead.cli`, even of `typing`.
if (
    sys.argv[:1] == ["-m"]
    and not sys.flags.safe_path
    and any(word.startswith("headtohead.") for word in sys.orig_argv)
):
    sys.path.pop(0)

from headtohead.lazy_names import import_name

TYPE_CHECKING = (
    False  # true for type checkers; importing it from `typing` would delay the handling of Ctrl-C
)

if TYPE_CHECKING:
    from headtohead import plugin as plugin
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
    from headtohead_judge.judging import judge as judge

_MODULES = {
    "judge": "headtohead_judge.judging",
    "curves": "headtohead.api",
    "export": "headtohead.api",
    "load": "headtohead.api",
    "plan": "headtohead.api",
    "results": "headtohead.api",
    "run": "headtohead.api",
    "write_report": "headtohead.api",
    "HeadToHeadError": "headtohead.errors",
    "register": "headtohead.plugins.registry",
    "registered": "headtohead.plugins.registry",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name == "plugin":
        import headtohead.plugin as plugin_names

        return plugin_names
    return import_name(__name__, name, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
