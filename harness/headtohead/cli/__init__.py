"""The `h2h` command line: one module per command, imported only when the command runs."""

from headtohead.lazy_names import import_name

# True for type checkers. Its import from `typing` would delay the handling of Ctrl-C.
TYPE_CHECKING = False

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
