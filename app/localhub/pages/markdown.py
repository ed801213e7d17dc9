"""Markdown as GitHub shows it, as far as comments of a bot need: tables, task lists, details, fenced code.

Raw HTML is escaped except for a few tags without attributes; comments vanish, as on GitHub.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ALLOWED_TAGS = "details|summary|sub|sup|br|kbd|b|i|em|strong|code|p|hr"
_TAG = re.compile(rf"<(/?(?:{ALLOWED_TAGS})(?:\s+open)?\s*/?)>", re.IGNORECASE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TASK = re.compile(r"\[([ xX])\]\s+")
# Applied to escaped text, where `&`, `<` and quotes are entities.
_ADDRESS_OR_MENTION = re.compile(
    r"(?<![\w/`])@(?P<login>[A-Za-z0-9][A-Za-z0-9-]{0,38})|https?://[^\s<]*[^\s<.,:;!?)\]'\"&]"
)
MAX_HIGHLIGHTED = 200_000  # characters; longer code is shown plain


def _safe_html(text: str) -> str:
    text = _COMMENT.sub("", text)
    parts = _TAG.split(text)  # odd items are the inside of an allowed tag
    return "".join(f"<{part}>" if index % 2 else escape(part) for index, part in enumerate(parts))


def _render_html(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    return _safe_html(tokens[index].content)


def highlighted(code: str, language: str) -> str:
    """Code as HTML with Pygments' classes; plain where the language is unknown."""
    if len(code) <= MAX_HIGHLIGHTED:
        try:
            return highlight(code, get_lexer_by_name(language, stripnl=False), HtmlFormatter(nowrap=True))
        except ClassNotFound:
            return escape(code)
    return escape(code)


def _render_fence(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    language = token.info.strip().split(" ", 1)[0] if token.info.strip() else ""
    return f'<pre class="code"><code>{highlighted(token.content, language)}</code></pre>\n'


def _render_image(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    # A remote picture would tell its host who reads the page; GitHub has a proxy for that, the hub shows a link.
    token = tokens[index]
    source, label = str(token.attrGet("src") or ""), escape(token.content)
    if source.startswith("/") and not source.startswith("//"):
        return f'<img src="{escape(source)}" alt="{label}">'
    return f'<a href="{escape(source)}" rel="nofollow noreferrer">🖼 {label or "picture"}</a>'


def _task_lists(state: StateCore) -> None:
    for index, token in enumerate(state.tokens):
        is_item = token.type == "inline" and index > 1 and state.tokens[index - 2].type == "list_item_open"
        match = _TASK.match(token.content) if is_item else None
        if match is None or not token.children or token.children[0].type != "text":
            continue
        done = " checked" if match[1] in "xX" else ""
        token.children[0].content = token.children[0].content[match.end() :]
        box = Token("task_box", "", 0, content=f'<input type="checkbox" disabled{done}> ')
        token.children.insert(0, box)
        state.tokens[index - 2].attrJoin("class", "task")


def _render_box(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    return tokens[index].content


def _mark_linked(state: StateCore) -> None:
    for token in state.tokens:
        depth = 0
        for child in token.children or []:
            depth += {"link_open": 1, "link_close": -1}.get(child.type, 0)
            child.meta["linked"] = depth > 0


def _render_text(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    text = escape(tokens[index].content)
    if tokens[index].meta.get("linked"):
        return text
    return _ADDRESS_OR_MENTION.sub(_linked, text)


def _linked(match: re.Match[str]) -> str:
    if match["login"]:
        return f'<span class="mention">@{match["login"]}</span>'
    return f'<a href="{match[0]}" rel="nofollow noreferrer">{match[0]}</a>'


def _renderer() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True, "breaks": True}).enable(["table", "strikethrough"])
    parser.core.ruler.after("inline", "task_lists", _task_lists)
    parser.core.ruler.after("task_lists", "mark_linked", _mark_linked)
    for name, rule in (
        ("html_block", _render_html),
        ("html_inline", _render_html),
        ("fence", _render_fence),
        ("image", _render_image),
        ("task_box", _render_box),
        ("text", _render_text),
    ):
        parser.add_render_rule(name, rule)
    return parser


_PARSER = _renderer()


def render_markdown(text: str | None) -> Markup:
    """The text as safe HTML."""
    return Markup(_PARSER.render(text)) if text else Markup("")  # noqa: S704 - everything the text says was escaped above
