"""YAML to plain values with the line of every field.

The scalars are those of YAML 1.2: ``1e-3`` is a number, ``no`` is text and there are no dates. A field without a value
is an error: YAML reads it as null, which is a valid value of some fields, such as ``tune``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from headtohead.config.source_location import FieldPath, Source, SourceLocation, shown
from headtohead.errors import HeadToHeadError

MAX_BYTES = 10_000_000
"""Maximum size of the text, as written and with every alias expanded."""

MAX_NODES = 100_000
"""Maximum number of values and keys, with every alias expanded."""

MAX_DEPTH = 100
"""Maximum number of nested lists and mappings."""

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


# libyaml is 20 times faster than the reader in Python, which is used where PyYAML was built without it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (replaces PyYAML's, never changed)


class _Dumper(yaml.SafeDumper):
    """Quotes strings that the loader would read as another type."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


for _kind, _pattern in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), None)


def dump(value: Mapping[str, Any]) -> str:
    """Return YAML that ``parse`` reads back as the same value.

    Raises:
        HeadToHeadError: For a value that is no number, text, list or mapping.
    """
    try:
        text: str = yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        reason = " ".join(str(part) for part in error.args)
        raise HeadToHeadError(
            f"an experiment holds numbers, texts, lists and mappings only: {reason}"
        ) from error
    return text


def parse(text: str, label: str) -> tuple[Any, dict[FieldPath, int]]:
    """Return the plain value and the line of each field in it.

    Raises:
        HeadToHeadError: For a syntax error, a key given twice, a key that is not text, a field without a value, a tag,
            a number that is not finite, or a text above the limits of this module.
    """
    if len(text) > MAX_BYTES:
        raise HeadToHeadError(f"{label}: {len(text):,} bytes, more than the limit of {MAX_BYTES:,}")
    lines: dict[FieldPath, int] = {}
    try:
        _refuse_large(text, label)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line, problem = _explained(error, text)
        raise HeadToHeadError(f"{label}:{line}: not valid YAML: {problem}") from error
    except (yaml.reader.ReaderError, UnicodeEncodeError) as error:
        if isinstance(error, UnicodeEncodeError):
            before = text[: error.start].encode()
        else:
            before = text.encode()[: error.position]
        line = len(before.split(b"\n"))
        raise HeadToHeadError(
            f"{label}:{line}: not valid YAML: a character that is not allowed"
        ) from error
    if root is None:
        return None, lines
    return _Nodes(label, lines).value(root, ()), lines


def _refuse_large(text: str, label: str) -> None:
    """Raise an error for a tag, deep nesting or too many values; libyaml's composer crashes on deep nesting."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        tag = getattr(event, "tag", None)
        if depth > MAX_DEPTH:
            problem = _TOO_DEEP
        elif tag is not None:
            problem = f"tag {shown(tag)} is not allowed"
        elif count > 2 * MAX_NODES:
            problem = _TOO_MANY
        else:
            continue
        line = event.start_mark.line + 1 if event.start_mark else 1
        raise HeadToHeadError(f"{label}:{line}: {problem}")


def _explained(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """Return the line of a syntax error, from 1, and what is wrong in it."""
    mark = error.problem_mark or error.context_mark
    problem = " ".join(str(error.problem or error.context).split())
    if problem == "could not find expected ':'":  # the scanner notices this on the next line
        mark = error.context_mark or mark
    if mark is None:
        return 1, problem
    first = "".join(text.splitlines()[mark.line : mark.line + 1])
    if first.lstrip(" ").startswith("\t"):
        problem = "a tab; indent with spaces"
    elif "${" in first:
        problem = "references such as ${model.d_model} do not exist; type the value"
    elif problem.startswith("mapping values"):
        problem = "a colon in a text without quotes, or no colon in the line above"
    return mark.line + 1, problem


def parse_override(text: str) -> tuple[str, Any]:
    """Return path and value of an override, the text of ``--set``.

    Raises:
        HeadToHeadError: If the path or the value is missing, or the value is not valid YAML.
    """
    return parse_assignment(text, "--set", "path=value, such as model.d_model=64")


def parse_assignment(text: str, option: str, example: str) -> tuple[str, Any]:
    """Return the name and the value of ``name=value``, the text of a command-line option.

    Raises:
        HeadToHeadError: If the name or the value is missing, or the value is not valid YAML.
    """
    label = f"{option} {text}"
    name, _, value = text.partition("=")
    if not name.strip() or not value.strip():
        raise HeadToHeadError(f"{label}: expected {example}")
    try:
        parsed, _ = parse(value, label)
    except HeadToHeadError as error:  # an option has no line numbers
        raise HeadToHeadError(
            label + re.sub(r"^:\d+", "", str(error).removeprefix(label))
        ) from error
    return name.strip(), parsed


_TOO_MANY = f"more than {MAX_NODES:,} values and keys or {MAX_BYTES:,} characters, aliases expanded"
_TOO_DEEP = f"more than {MAX_DEPTH} nested lists and mappings"


class _Nodes:
    """Turns nodes into values and records their lines, which PyYAML's constructors discard."""

    def __init__(self, label: str, lines: dict[FieldPath, int]) -> None:
        self.source = Source(label, lines)
        self.lines = lines
        self.nodes = 0
        self.characters = 0

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        """Return the value of a node; the limits count every alias as what it stands for."""
        self.nodes += 1
        if isinstance(node, yaml.ScalarNode):
            self.characters += len(node.value)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(path) > MAX_DEPTH:  # also an alias that contains itself
            raise self.error(path[:1], _TOO_DEEP)
        if self.nodes > MAX_NODES or self.characters > MAX_BYTES:
            raise self.error(path[:1], _TOO_MANY)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]
        return self.scalar(node.tag.removeprefix(_TAG), node.value, path)

    def mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        """Return the mapping of a node; its keys are unique texts."""
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            line = key_node.start_mark.line + 1
            if key_node.tag != _TAG + "str" or len(key) > 200 or not key.isprintable():
                what = shown(key) if isinstance(key, str) else "a list or a mapping"
                raise self.error(
                    path, f"keys are text of at most 200 printable characters, got {what}", line
                )
            if key in result:
                first = self.lines[(*path, key)]
                raise self.error(path, f"duplicate key '{key}', first on line {first}", line)
            self.nodes += 1
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result

    def scalar(self, kind: str, text: str, path: FieldPath) -> str | float | bool | None:
        """Return the text, number, truth value or None of a scalar."""
        if kind == "str":
            return text
        if kind == "bool":
            return text.lower() == "true"
        if kind == "null":
            if text == "" and path:
                raise self.error(
                    path, "has no value; type one (null for none), or remove the field"
                )
            return None
        number = _number(kind, text)
        if number is None:
            raise self.error(path, f"expected {_LIMITS[kind]}, got {shown(text)}")
        return number

    def error(self, path: FieldPath, message: str, line: int | None = None) -> HeadToHeadError:
        """Return an error about a field, in the line of the field or in another line."""
        source = Source(self.source.label, {(): line}) if line else self.source
        return SourceLocation(source, path).error(message)


_LIMITS = {"int": "a whole number below 2^63", "float": "a finite number"}
"""What a number has to be, by the kind of its scalar."""


def _number(kind: str, text: str) -> float | None:
    """Return a number of the kinds ``int`` and ``float``, or None if it is too large or not finite."""
    if len(text) > 400:
        return None
    if kind == "int":
        number: float = int(text)
        is_valid = abs(number) < 2**63
    else:
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        is_valid = math.isfinite(number)
    return number if is_valid else None
