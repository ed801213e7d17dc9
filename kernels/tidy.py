"""Break lines beyond 120 columns at their outermost call, as ruff does. The target's own ruff has the last word. Pure."""

from __future__ import annotations

WIDTH = 120
INDENT = "    "


def tidy(text: str) -> str:
    return "\n".join(part for line in text.split("\n") for part in _broken(line))


def _broken(line: str) -> list[str]:
    """The line, or its outermost call over several lines."""
    if len(line) <= WIDTH or "(" not in line or line.lstrip().startswith(("#", '"""')):
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    start = line.index("(")
    end = _closing(line, start)
    if end is None or not line[start + 1 : end].strip():
        return [line]
    inside = line[start + 1 : end]
    head, tail = line[: start + 1], indent + ")" + line[end + 1 :]
    if len(indent + INDENT + inside) <= WIDTH:
        return [head, indent + INDENT + inside, *_broken(tail)]
    parts = _arguments(inside)
    broken = [piece for part in parts for piece in _broken(f"{indent}{INDENT}{part},")]
    return [head, *broken, *_broken(tail)]


def _closing(line: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[position], 0)
        if depth == 0:
            return position
    return None


def _arguments(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    return [*parts, current.strip()] if current.strip() else parts
