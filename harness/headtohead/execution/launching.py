"""From a launcher's name and the options that were typed to a launcher that is ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.plugins.launcher import Launcher
from headtohead.plugins.registry import current


def make_launcher(name: str, given: Mapping[str, Any]) -> Launcher:
    """Return the launcher of that name with its options.

    Raises:
        HeadToHeadError: For an unknown name or option, with the nearest one, or a wrong value.
    """
    entry = current().launcher(name)
    unknown = sorted(given.keys() - entry.Options.model_fields.keys())
    if unknown and not entry.Options.model_fields:
        raise HeadToHeadError(f"launcher '{name}' has no options, got '{unknown[0]}'")
    try:
        options = entry.Options(**given)
    except ValidationError as error:
        path, message = format_validation_error(error, entry.Options, given)
        if message.startswith("unknown field"):  # it names the option itself
            message, path = message.replace("field", "option", 1), ()
        place = f"launcher '{name}': {dotted(path)}" if path else f"launcher '{name}'"
        raise HeadToHeadError(f"{place}: {message}") from error
    return entry(options)
