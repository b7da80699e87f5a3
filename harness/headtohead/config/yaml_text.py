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
        depth = 0
        for count, event in enumerate(
            yaml.parse(text, Loader=_Loader)
        ):  # libyaml's composer crashes on deep nesting
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                event, yaml.CollectionEndEvent
            )
            tag = getattr(event, "tag", None)
            if tag is not None or depth > MAX_DEPTH or count > 2 * MAX_NODES:
                line = event.start_mark.line + 1 if event.start_mark else 1
                problem = (
                    _TOO_DEEP
                    if depth > MAX_DEPTH
                    else _TOO_MANY
                    if tag is None
                    else f"tag {shown(tag)} is not allowed"
                )
                raise HeadToHeadError(f"{label}:{line}: {problem}")
        root = yaml.compose(text, Loader=_Loader)
        return None if root is None else _Nodes(label, lines).value(root, ()), lines
    except yaml.MarkedYAMLError as error:
        mark, problem = (
            error.problem_mark or error.context_mark,
            " ".join(str(error.problem or error.context).split()),
        )
        if problem == "could not find expected ':'":  # the scanner notices this on the next line
            mark = error.context_mark or mark
        rest = text.splitlines()[mark.line :] if mark else []
        if rest and rest[0].lstrip(" ").startswith("\t"):
            problem = "a tab; indent with spaces"
        elif "${" in "".join(rest[:1]):
            problem = "references such as ${model.d_model} do not exist; type the value"
        elif problem.startswith("mapping values"):
            problem = "a colon in a text without quotes, or no colon in the line above"
        raise HeadToHeadError(
            f"{label}:{mark.line + 1 if mark else 1}: not valid YAML: {problem}"
        ) from error
    except (yaml.reader.ReaderError, UnicodeEncodeError) as error:
        is_encoding = isinstance(error, UnicodeEncodeError)
        before = text[: error.start].encode() if is_encoding else text.encode()[: error.position]  # type: ignore[union-attr]
        line = len(before.split(b"\n"))
        raise HeadToHeadError(
            f"{label}:{line}: not valid YAML: a character that is not allowed"
        ) from error


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
        self.source, self.nodes, self.characters = Source(label, lines), 0, 0
        self.lines = lines

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        self.nodes += 1
        self.characters += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
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
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if key_node.tag != _TAG + "str" or len(key) > 200 or not key.isprintable():
                given = shown(key) if isinstance(key, str) else "a list or a mapping"
                raise self.error(
                    path, f"keys are text of at most 200 printable characters, got {given}", line
                )
            if key in result:
                first = self.lines[(*path, key)]
                raise self.error(path, f"duplicate key '{key}', first on line {first}", line)
            self.nodes += 1
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result

    def scalar(self, kind: str, text: str, path: FieldPath) -> str | float | bool | None:
        if kind == "str":
            return text
        if kind == "null" and text == "" and path:
            raise self.error(path, "has no value; type one (null for none), or remove the field")
        if kind in ("null", "bool"):
            return None if kind == "null" else text.lower() == "true"
        if len(text) <= 400:
            number = (
                int(text)
                if kind == "int"
                else float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            )
            if math.isfinite(number) if kind == "float" else abs(number) < 2**63:
                return number
        expected = "a whole number below 2^63" if kind == "int" else "a finite number"
        raise self.error(path, f"expected {expected}, got {shown(text)}")

    def error(self, path: FieldPath, message: str, line: int | None = None) -> HeadToHeadError:
        location = SourceLocation(
            Source(self.source.label, {(): line}) if line else self.source, path
        )
        return location.error(message)
