"""The `h2h` command line: one module per command, imported only when the command runs."""

from headtohead.lazy_names import import_name

TYPE_CHECKING = (
    False  # true for type checkers; importing it from `typing` would delay the handling of Ctrl-C
)

if TYPE_CHECKING:
    from headtohead.cli.group import main as main
    from headtohead.cli.group import summaries as summaries

_MODULES = {
    "main": "headtohead.cli.group",
    "summaries": "headtohead.cli.group",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    return import_name(__name__, name, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
