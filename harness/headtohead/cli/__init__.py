"""The `h2h` command line: one module per command, imported only when the command runs."""

from headtohead.lazy_names import lazy_names

TYPE_CHECKING = (
    False  # true for type checkers; importing it from `typing` would delay the handling of Ctrl-C
)

if TYPE_CHECKING:
    from headtohead.cli.group import main as main
    from headtohead.cli.group import summaries as summaries

__getattr__, __dir__ = lazy_names(__name__)
