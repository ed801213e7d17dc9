"""YAML as plain data, with the line that each key stands on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

MAX_CHARS = 64_000
MAX_DEPTH = 20


class YamlMistake(Exception):  # noqa: N818 - an answer to a person
    """The text isn't YAML that we read: one line that starts with the place."""


class Lines:
    """The line of each value of a document, by the way to it."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Any, ...], int] = {(): 1}

    def put(self, way: tuple[Any, ...], line: int) -> None:
        self._lines[way] = line

    def of(self, way: Sequence[Any]) -> int:
        """The line, from 1, of a value, or of the nearest thing that holds it."""
        parts = tuple(way)
        while parts not in self._lines:
            parts = parts[:-1]
        return self._lines[parts]


def read_yaml(text: str) -> tuple[Any, Lines]:
    """(data, lines) of one YAML document of plain values; None for an empty one. Raises YamlMistake.

    References (`&`, `*`, `<<`) are refused: a short text could stand for a gigantic one. So is a key that stands twice.
    """
    if len(text) > MAX_CHARS:
        raise YamlMistake(f"line 1: the file is longer than {MAX_CHARS:,} characters")
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken):
                raise YamlMistake(
                    f"line {token.start_mark.line + 1}: references and tags (&, *, !) are not read; write the value out"
                )
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlMistake(f"line {mark.line + 1 if mark else 1}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise YamlMistake(f"line 1: not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise YamlMistake("line 1: nested too deeply") from None
    lines = Lines()
    return (None if node is None else _value(node, (), lines)), lines


def _value(node: yaml.Node, way: tuple[Any, ...], lines: Lines) -> Any:
    line = node.start_mark.line + 1
    if len(way) > MAX_DEPTH:
        raise YamlMistake(f"line {line}: nested too deeply")
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlMistake(f"line {key_line}: a key must be a word")
            key = key_node.value
            if key in found:
                raise YamlMistake(f"line {key_line}: `{key[:60]}` stands here a second time")
            lines.put((*way, key), key_line)
            found[key] = _value(value_node, (*way, key), lines)
        return found
    if isinstance(node, yaml.SequenceNode):
        items = []
        for number, item in enumerate(node.value):
            lines.put((*way, number), item.start_mark.line + 1)
            items.append(_value(item, (*way, number), lines))
        return items
    return _scalar(node, line)


def _scalar(node: yaml.Node, line: int) -> Any:
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_object(node)
    except (yaml.YAMLError, ValueError):
        raise YamlMistake(f"line {line}: `{str(node.value)[:60]}` is not a value") from None
    finally:
        loader.dispose()
    if value is not None and not isinstance(value, str | bool | int | float):
        return str(node.value)  # a date, say: text here
    return value
