"""Creation of a launcher from its name and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.plugins.launcher import Launcher
from headtohead.plugins.registry import current


def make_launcher(name: str, values: Mapping[str, Any]) -> Launcher:
    """Return the launcher of that name with validated options.

    Raises:
        HeadToHeadError: If the name or an option is unknown, with a suggestion, or a value is invalid.
    """
    entry = current().launcher(name)
    unknown = sorted(values.keys() - entry.Options.model_fields.keys())
    if unknown and not entry.Options.model_fields:
        raise HeadToHeadError(f"launcher '{name}' has no options, got '{unknown[0]}'")
    try:
        options = entry.Options(**values)
    except ValidationError as error:
        path, message = format_validation_error(error, entry.Options, values)
        if message.startswith("unknown field"):  # the message quotes the option
            message, path = message.replace("field", "option", 1), ()
        subject = f"launcher '{name}': {dotted(path)}" if path else f"launcher '{name}'"
        raise HeadToHeadError(f"{subject}: {message}") from error
    return entry(options)
