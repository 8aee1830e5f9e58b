"""Renders descriptions, release notes and readmes as HTML: CommonMark without HTML and images.

Text without Markdown is shown as it is, with its line ends and spaces. In the worst known case,
parsing takes about 100 µs for each delimiter and line, so text with many delimiters or lines is
also shown as it is.
"""

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

# Importing markdown-it takes half as long as importing Flask, and most commands render no page.
if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# Input that exceeds one of these limits is shown as plain text. The result must not depend on how
# busy the machine is, so the limits apply to the input and not to the parsing time.
MAX_LENGTH = 20_000  # characters
MAX_DELIMITERS = 1500
DELIMITERS = "*_`[](<!&\\\n"
# The parser may read a whole word for each link, to find the end of the link's address.
MAX_ADDRESS_LENGTH = 100_000  # characters of the longest word, times the number of links
# Text that is nested deeper is not parsed, because brackets are parsed again at each level.
MAX_NESTING = 10
# Matches any markup. Most input contains none and needs no parser, which takes 50 µs even for a
# short string. Only blanks may precede a marker: allowing line ends would take quadratic time.
SYNTAX = re.compile(r"[*_`\[<]|^[ \t]*[#>+=~0-9-]", re.MULTILINE)
# Cards and previews show only the beginning of a text, and never more than this.
MAX_PARAGRAPH = 500  # characters
BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
LINK = re.compile("https?://[^/]", re.IGNORECASE)
PARAGRAPH_TYPES = {"paragraph_open", "paragraph_close", "inline"}
TEXT_TYPES = {"text", "softbreak", "hardbreak"}
# The parser treats [text]() as a link to the same page.
EMPTY_LINK = {"link_open": "[", "link_close": "]()"}
# With dir="auto", the first letter of each block determines the direction of its text.
DIRECTED_TYPES = {"paragraph_open", "heading_open", "list_item_open", "blockquote_open"}


def render_markdown(text: str, max_length: int = MAX_LENGTH, *, breaks: bool = True) -> Markup:
    """Return Markdown as safe HTML for a page; input that exceeds the limits is not parsed.

    If breaks is false, line ends inside a paragraph are not shown.
    """
    tokens = []
    if len(text) <= max_length and _is_quickly_parsed(text) and SYNTAX.search(text):
        tokens = _parse(text)
    if _is_plain(tokens):
        return Markup('<p class="plain" dir="auto">') + escape(text) + Markup("</p>")
    _lower_headings(tokens)
    for token in tokens:
        _set_attributes(token)
    parser = _parser()
    # The renderer escapes all text, and the parser does not recognise HTML.
    options = type(parser.options)({**parser.options, "breaks": breaks})  # type: ignore[typeddict-item]
    html: str = parser.renderer.render(tokens, options, {})
    return Markup(html)  # noqa: S704


def first_paragraph(text: str) -> str:
    """Return the beginning of the first paragraph as plain text; headings are skipped."""
    text = text[:MAX_PARAGRAPH].strip()
    if not SYNTAX.search(text):
        return BLANK_LINE.split(text, maxsplit=1)[0]
    tokens = _parse(text)
    blocks = [(before.type, token) for before, token in pairwise(tokens) if token.type == "inline"]
    blocks.sort(key=lambda block: block[0] != "paragraph_open")
    children = (blocks[0][1].children or []) if blocks else []
    return "".join(" " if each.type.endswith("break") else each.content for each in children)


def _is_quickly_parsed(text: str) -> bool:
    longest_word = max(map(len, text.split()), default=0)
    return (
        sum(map(text.count, DELIMITERS)) <= MAX_DELIMITERS
        and text.count("](") * longest_word <= MAX_ADDRESS_LENGTH
    )


def _parse(text: str) -> "list[Token]":
    """Parse Markdown, and turn links without an address back into plain text."""
    tokens = _parser().parse(text)
    for token in tokens:
        is_empty = False
        for child in token.children or ():
            # Links are never nested.
            if child.type == "link_open":
                is_empty = not child.attrGet("href")
            if is_empty and child.type in EMPTY_LINK:
                child.content = EMPTY_LINK[child.type]
                child.type, child.tag, child.nesting = "text", "", 0
    return tokens


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    options = {"html": False, "breaks": True, "maxNesting": MAX_NESTING}
    # Without images, ![text](url) is a link. Without indented code, lines may begin with spaces.
    parser = MarkdownIt("commonmark", options).disable(["image", "code"])
    # Relative links would point to pages in the catalog, and other schemes could run code.
    parser.validateLink = lambda url: bool(LINK.match(url))  # type: ignore[method-assign]
    return parser


def _is_plain(tokens: "list[Token]") -> bool:
    """Return whether there is no markup: only plain paragraphs, or nothing at all."""
    return all(
        token.type in PARAGRAPH_TYPES
        and all(child.type in TEXT_TYPES for child in token.children or ())
        for token in tokens
    )


def _lower_headings(tokens: "list[Token]") -> None:
    """Lower all headings to h3 or below without skipping a level: the page itself uses h2."""
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
