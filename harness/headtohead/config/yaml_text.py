"""YAML to plain values with the line of every field.

The scalars are those of YAML 1.2: ``1e-3`` is a number, ``no`` is text and there are no dates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from headtohead.config.source_location import FieldPath, dotted
from headtohead.errors import HeadToHeadError

_TAG = "tag:yaml.org,2002:"


_LONGEST_NUMBER = 400


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (replaces PyYAML's, never changed)


class _Dumper(yaml.SafeDumper):
    """Quotes strings that the loader would read as another type."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


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
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), _first)


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


def parse(text: str, label: str) -> tuple[Any, dict[FieldPath, int]]:
    """Return the plain value and the line of each field in it.

    Raises:
        HeadToHeadError: For a syntax error, a key given twice, a key that is not text, or a tag.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{label}:{mark.line + 1}" if mark else label
        problem = " ".join(str(error.problem or error.context).split())
        raise HeadToHeadError(f"{where}: not valid YAML: {problem}") from error
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise HeadToHeadError(f"{label}: not valid YAML: {problem}") from error
    except RecursionError as error:
        raise HeadToHeadError(f"{label}: not valid YAML: nested too deeply") from error
    lines: dict[FieldPath, int] = {}
    value = None if root is None else _Builder(label, lines).build(root, (), ())
    return value, lines


class _Builder:
    """Turns nodes into values and records their lines, which PyYAML's constructors discard."""

    def __init__(self, label: str, lines: dict[FieldPath, int]) -> None:
        self.label = label
        self.lines = lines

    def build(self, node: yaml.Node, path: FieldPath, around: tuple[int, ...]) -> Any:
        if id(node) in around:
            raise self.error(node, path, "an alias contains itself")
        around = (*around, id(node))
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self.mapping(node, path, around)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.build(item, (*path, i), around) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        raise self.error(node, path, f"tag '{node.tag}' is not allowed here")

    def mapping(self, node: yaml.MappingNode, path: FieldPath, around: tuple[int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first_line: dict[str, int] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _TAG + "merge":
                merged = self.merge(value_node, path, around) | merged
                continue
            if key_node.tag != _TAG + "str":
                raise self.error(key_node, path, f"keys are text, got {key_node.value}")
            key = key_node.value
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

    def scalar(self, node: yaml.ScalarNode, path: FieldPath) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind in ("int", "float") and len(node.value) > _LONGEST_NUMBER:
            raise self.error(node, path, f"a number of {len(node.value)} characters is too long")
        if kind == "null":
            return None
        if kind == "bool":
            return node.value.lower() == "true"
        if kind == "int":
            return int(node.value)
        if kind == "float":
            return float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if kind in ("str", "merge"):
            return node.value
        raise self.error(node, path, f"tag '{node.tag}' is not allowed here")

    def error(self, node: yaml.Node, path: FieldPath, message: str) -> HeadToHeadError:
        where = f"{self.label}:{node.start_mark.line + 1}"
        field = f" {dotted(path)}:" if path else ""
        return HeadToHeadError(f"{where}:{field} {message}")
