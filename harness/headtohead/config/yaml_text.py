"""YAML to plain values with the line of every field.

The scalars are those of YAML 1.2: ``1e-3`` is a number, ``no`` is text and there are no dates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from headtohead.config.source_location import FieldPath, dotted, shown
from headtohead.errors import HeadToHeadError

MAX_BYTES = 10_000_000
"""Maximum size of the text, as written and with every alias expanded."""

MAX_NODES = 100_000
"""Maximum number of values and keys, with every alias expanded."""

MAX_DEPTH = 100
"""Maximum number of nested lists and mappings."""

MAX_KEY = 200
"""Maximum number of characters of a key."""

MAX_WHOLE = 2**63
"""Whole numbers are smaller than this, as in JSON readers and databases."""

_TAG = "tag:yaml.org,2002:"

_LONGEST_NUMBER = 400

_NAMES = {"null": "nothing", "bool": "true or false", "int": "a whole number", "float": "a number"}


# libyaml is 20 times faster than the reader in Python, which is used where PyYAML was built without it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (replaces PyYAML's, never changed)


class _Dumper(yaml.SafeDumper):
    """Quotes strings that the loader would read as another type."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


_PATTERNS: dict[str, re.Pattern[str]] = {}
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    _PATTERNS[_name] = re.compile(rf"^(?:{_pattern})$")
    _Loader.add_implicit_resolver(_TAG + _name, _PATTERNS[_name], _first)


def dump(value: Mapping[str, Any]) -> str:
    """Return YAML that ``parse`` reads back as the same value.

    Raises:
        HeadToHeadError: For a value that is no number, text, list or mapping.
    """
    try:
        text: str = yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        reason = " ".join(str(part) for part in error.args)
        raise HeadToHeadError(f"an experiment holds numbers, texts, lists and mappings only: {reason}") from error
    return text


_REMEDIES = {
    "could not find expected ':'": "expected ': ' after a key",
    "mapping values are not allowed in this context": "': ' is not allowed here; correct the indentation, or quote the "
    "text",
}
"""Plainer texts for errors of the YAML library."""


def parse(text: str, label: str) -> tuple[Any, dict[FieldPath, int]]:
    """Return the plain value and the line of each field in it.

    Raises:
        HeadToHeadError: For a syntax error, a key given twice, a key that is not text, a tag, a number that is not
            finite, or a text above the limits of this module.
    """
    try:
        refuse_size(len(text.encode(errors="surrogatepass")), label)
        _refuse_large(text, label)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, " ".join(str(error.problem or error.context).split())
        if problem == "could not find expected ':'":  # the scanner notices this on the next line
            mark = error.context_mark or mark
        where = f"{label}:{mark.line + 1}" if mark else label
        rest = text.splitlines()[mark.line :] if mark else []
        if problem.startswith("found") and rest and rest[0].lstrip(" ").startswith("\t"):
            problem = "a tab; indent with spaces"
        problem = _REMEDIES.get(problem, problem)
        raise HeadToHeadError(f"{where}: not valid YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise HeadToHeadError(
            f"{label}:{line}: not valid YAML: the character U+{int(error.character):04X} is not allowed"
        ) from error
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise HeadToHeadError(f"{label}:{line}: not valid YAML: half of a surrogate pair") from error
    lines: dict[FieldPath, int] = {}
    value = None if root is None else _Builder(label, lines).build(root, (), ())
    return value, lines


def refuse_size(size: int, label: str) -> None:
    """Raise if a text of this many bytes is too large to be parsed."""
    if size > MAX_BYTES:
        raise HeadToHeadError(f"{label}: {size:,} bytes, more than the limit of {MAX_BYTES:,}")


def _refuse_large(text: str, label: str) -> None:
    """Raise if the text, with its aliases unexpanded, has too many values or is nested too deeply."""
    nodes = depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            assert event.start_mark is not None, "parsed events have a position"
            raise HeadToHeadError(
                f"{label}:{event.start_mark.line + 1}: {_TOO_MANY if nodes > MAX_NODES else _TOO_DEEP}"
            )


_TOO_MANY = f"more than {MAX_NODES:,} values and keys, aliases expanded"
_TOO_DEEP = f"more than {MAX_DEPTH} nested lists and mappings"


class _Builder:
    """Turns nodes into values and records their lines, which PyYAML's constructors discard."""

    def __init__(self, label: str, lines: dict[FieldPath, int]) -> None:
        self.label = label
        self.lines = lines
        self.nodes = self.characters = 0

    def build(self, node: yaml.Node, path: FieldPath, around: tuple[int, ...]) -> Any:
        if id(node) in around:
            raise self.error(node, path, "an alias contains itself")
        self.count(node, path)
        if len(around) > MAX_DEPTH:
            raise self.too_large(path, _TOO_DEEP)
        around = (*around, id(node))
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self.mapping(node, path, around)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.build(item, (*path, i), around) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        raise self.error(node, path, f"tag {shown(node.tag)} is not allowed here")

    def mapping(self, node: yaml.MappingNode, path: FieldPath, around: tuple[int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first_line: dict[str, int] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _TAG + "merge":
                merged = self.merge(value_node, path, around) | merged
                continue
            if key_node.tag != _TAG + "str" or not isinstance(key_node.value, str):
                raise self.error(key_node, path, f"keys are text, got {shown(key_node.value)}")
            self.count(key_node, path)
            key = key_node.value
            if len(key) > MAX_KEY or not key.isprintable():
                raise self.error(key_node, path, f"keys are at most {MAX_KEY} printable characters, got {shown(key)}")
            if key in first_line:
                raise self.error(key_node, path, f"duplicate key '{key}', first on line {first_line[key]}")
            first_line[key] = line
            self.lines[(*path, key)] = line
            result[key] = self.build(value_node, (*path, key), around)
        return merged | result

    def merge(self, node: yaml.Node, path: FieldPath, around: tuple[int, ...]) -> dict[str, Any]:
        value = self.build(node, path, around)
        parts = value if isinstance(value, list) else [value]
        result: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, dict):
                raise self.error(node, path, "<< takes a mapping or a list of mappings")
            result = part | result
        return result

    def count(self, node: yaml.Node, path: FieldPath) -> None:
        """Count a value or key, and raise if the expanded text is too large."""
        self.nodes += 1
        self.characters += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if self.nodes > MAX_NODES:
            raise self.too_large(path, _TOO_MANY)
        if self.characters > MAX_BYTES:
            raise self.too_large(path, f"more than {MAX_BYTES:,} characters, aliases expanded")

    def too_large(self, path: FieldPath, message: str) -> HeadToHeadError:
        """Return an error with the line of the value, or of the alias of it, which follows its anchor."""
        line = max(self.lines.get(path[:length], 0) for length in range(len(path) + 1))
        return HeadToHeadError(f"{self.label}:{line}: {message}")

    def scalar(self, node: yaml.ScalarNode, path: FieldPath) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind in ("int", "float") and len(text) > _LONGEST_NUMBER:
            raise self.error(node, path, f"a number of {len(text)} characters is too long")
        if kind in _NAMES and not _PATTERNS[kind].match(text):
            raise self.error(node, path, f"expected {_NAMES[kind]} after the tag !!{kind}, got {shown(text)}")
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            return self.number(int(text), node, path)
        if kind == "float":
            return self.number(float(text.lower().replace(".inf", "inf").replace(".nan", "nan")), node, path)
        if kind in ("str", "merge"):
            return text
        raise self.error(node, path, f"tag {shown(node.tag)} is not allowed here")

    def number(self, number: float, node: yaml.ScalarNode, path: FieldPath) -> float:
        """Return the number, and raise if it is not finite or no whole number of 64 bits."""
        if isinstance(number, int) and abs(number) >= MAX_WHOLE:
            raise self.error(node, path, f"expected a whole number below 2^63, got {shown(node.value)}")
        if not math.isfinite(number):
            raise self.error(node, path, f"expected a finite number, got {shown(node.value)}")
        return number

    def error(self, node: yaml.Node, path: FieldPath, message: str) -> HeadToHeadError:
        where = f"{self.label}:{node.start_mark.line + 1}"
        field = f" {dotted(path)}:" if path else ""
        return HeadToHeadError(f"{where}:{field} {message}")
