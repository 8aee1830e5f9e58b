"""Descriptions, release notes, readmes as HTML: CommonMark without HTML and images, or plain text.

A text without Markdown is not changed: its lines and spaces are shown as they are. The work is
bounded by the length of the text: in the worst case that is known, a row of opening brackets, it is
about 20 µs for each character.
"""

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

# markdown-it takes half as long to import as Flask, and most commands render no page.
if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# A longer text is shown as plain text.
MAX_LENGTH = 20_000  # characters
# Text that is nested deeper is not parsed. Brackets are parsed again for each level.
MAX_NESTING = 10
# What every Markdown text has, other than a paragraph: most texts have none of it, and the parser
# takes 50 µs for a short one.
SYNTAX = re.compile(r"[*_`\[<]|^\s*(?:[#>+=~-]|\d)", re.MULTILINE)
# A card and a preview show less than this of a text.
MAX_PARAGRAPH = 500  # characters
BLANK_LINE = re.compile(r"\n\s*\n")
LINK = re.compile("https?://[^/]", re.IGNORECASE)
PARAGRAPH_TYPES = {"paragraph_open", "paragraph_close", "inline"}
TEXT_TYPES = {"text", "softbreak", "hardbreak"}
# Right-to-left text is aligned by the first letter of its own block.
DIRECTED_TYPES = {"paragraph_open", "heading_open", "list_item_open", "blockquote_open"}


def render_markdown(text: str, max_length: int = MAX_LENGTH, *, breaks: bool = True) -> Markup:
    """Return the text as HTML that is safe in a page; a longer one is not read as Markdown.

    Without breaks, a line of a paragraph does not end where it ends in the text.
    """
    tokens = []
    if len(text) <= max_length and SYNTAX.search(text):
        tokens = _parser().parse(text)
    if _is_plain(tokens):
        return Markup('<p class="plain" dir="auto">') + escape(text) + Markup("</p>")
    _lower_headings(tokens)
    for token in tokens:
        _set_attributes(token)
    parser = _parser()
    # The renderer escapes all text, and the parser recognizes no HTML.
    options = type(parser.options)({**parser.options, "breaks": breaks})  # type: ignore[typeddict-item]
    html: str = parser.renderer.render(tokens, options, {})
    return Markup(html)  # noqa: S704


def first_paragraph(text: str) -> str:
    """Return the beginning of the first paragraph as plain text, without one of a heading."""
    text = text[:MAX_PARAGRAPH].strip()
    if not SYNTAX.search(text):
        return BLANK_LINE.split(text, maxsplit=1)[0]
    tokens = _parser().parse(text)
    blocks = [(before.type, token) for before, token in pairwise(tokens) if token.type == "inline"]
    blocks.sort(key=lambda block: block[0] != "paragraph_open")
    children = (blocks[0][1].children or []) if blocks else []
    return "".join(" " if each.type.endswith("break") else each.content for each in children)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    options = {"html": False, "breaks": True, "maxNesting": MAX_NESTING}
    # Without images, ![text](url) is a link. Without indented code, spaces may begin a line.
    parser = MarkdownIt("commonmark", options).disable(["image", "code"])
    # No relative links, which would lead to other pages of the catalog, and nothing that can run.
    parser.validateLink = lambda url: bool(LINK.match(url))  # type: ignore[method-assign]
    return parser


def _is_plain(tokens: "list[Token]") -> bool:
    """Return whether the text is only paragraphs, or nothing, such as definitions of links."""
    return all(
        token.type in PARAGRAPH_TYPES
        and all(child.type in TEXT_TYPES for child in token.children or ())
        for token in tokens
    )


def _lower_headings(tokens: "list[Token]") -> None:
    """Begin below the headings of a page, which are h2, and skip no level."""
    level = 2
    for token in tokens:
        if token.type == "heading_open":
            level = min(int(token.tag[1]) + 2, level + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{level}"


def _set_attributes(token: "Token") -> None:
    if token.type in DIRECTED_TYPES:
        token.attrSet("dir", "auto")
    for child in token.children or ():
        if child.type == "link_open":
            child.attrSet("rel", "nofollow noopener")
