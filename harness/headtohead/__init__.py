"""headtohead runs Transformer variants head to head.

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

from headtohead.lazy_names import lazy_names

TYPE_CHECKING = (
    False  # true for type checkers; importing it from `typing` would delay the handling of Ctrl-C
)

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

__getattr__, __dir__ = lazy_names(__name__)
