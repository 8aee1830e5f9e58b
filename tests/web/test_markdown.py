"""Markdown in descriptions and release notes: what is rendered, and what cannot be."""

import random
import sys
import time
from collections.abc import Callable
from types import FrameType

import pytest
from builders import document, version
from flask import Flask
from markup import elements

from catalog.web.markdown import DELIMITERS, MAX_DELIMITERS, MAX_LENGTH, render_markdown

REL = 'rel="nofollow noopener"'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*a*", '<p dir="auto"><em>a</em></p>'),
        ("__a__", '<p dir="auto"><strong>a</strong></p>'),
        ("***a** b*", '<p dir="auto"><em><strong>a</strong> b</em></p>'),
        ("a `b <c>`", '<p dir="auto">a <code>b &lt;c&gt;</code></p>'),
        ("``a`b``", '<p dir="auto"><code>a`b</code></p>'),
        ("*a*\nb", '<p dir="auto"><em>a</em><br />\nb</p>'),
        ("*a*\n\nb", '<p dir="auto"><em>a</em></p>\n<p dir="auto">b</p>'),
        ("\\*a\\* *b*", '<p dir="auto">*a* <em>b</em></p>'),
        ("&copy; *b*", '<p dir="auto">© <em>b</em></p>'),
        ("# a", '<h3 dir="auto">a</h3>'),
        ("###### a", '<h3 dir="auto">a</h3>'),
        ("a\n===", '<h3 dir="auto">a</h3>'),
        ("- a\n- b", '<ul>\n<li dir="auto">a</li>\n<li dir="auto">b</li>\n</ul>'),
        ("7. a", '<ol start="7">\n<li dir="auto">a</li>\n</ol>'),
        ("> a", '<blockquote dir="auto">\n<p dir="auto">a</p>\n</blockquote>'),
        ("a\n\n---", '<p dir="auto">a</p>\n<hr />'),
        ("```js\n<b>\n```", '<pre><code class="language-js">&lt;b&gt;\n</code></pre>'),
        ("[a](https://b.example)", f'<p dir="auto"><a href="https://b.example" {REL}>a</a></p>'),
        ("[a](HTTP://b)", f'<p dir="auto"><a href="HTTP://b" {REL}>a</a></p>'),
        ("<https://b/c>", f'<p dir="auto"><a href="https://b/c" {REL}>https://b/c</a></p>'),
        ("[a]\n\n[a]: https://b/c", f'<p dir="auto"><a href="https://b/c" {REL}>a</a></p>'),
        ("[a](https://b/天)", f'<p dir="auto"><a href="https://b/%E5%A4%A9" {REL}>a</a></p>'),
        ("![a](https://b/c.png)", f'<p dir="auto">!<a href="https://b/c.png" {REL}>a</a></p>'),
    ],
)
def test_markdown_is_rendered(text: str, html: str) -> None:
    assert render_markdown(text).strip() == html


@pytest.mark.parametrize(
    "text",
    [
        "Fixed.",
        "New day view.\nDrag the divider.\n\n\n  Two spaces,\n    four spaces.",
        "Entities such as &amp; and &quot;, a \\ and \\d+\\.\\d+",
        "2 * 3 * 4, snake_case_name, *.js, #12, 1/2, a_b, ~b~",
        "[1]: https://example.com",
        "Line.  \nNext line.",
        "",
        "أوقات الصلاة",
        "梅雨入り・梅雨明け",
    ],
)
def test_text_without_markdown_is_not_changed(text: str) -> None:
    (paragraph,) = elements(render_markdown(text))
    assert (paragraph.tag, paragraph.attributes) == ("p", {"class": "plain", "dir": "auto"})
    assert "".join(paragraph.texts) == text


HOSTILE = [
    "<script>alert(1)</script>",
    "*a* <img src=x onerror=alert(1)>",
    "*a* <svg/onload=alert(1)>",
    "<!-- --><b>*a*",
    "<a href='https://b' onclick=alert(1)>*a*</a>",
    "```<script>\n</code></pre><script>alert(1)</script>\n```",
    '```" onclick="alert(1)\na\n```',
    "`</code><script>alert(1)</script>`",
    "# </h3><script>alert(1)</script>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "[a](&#x6A;&#x61;vascript&colon;alert(1))",
    "[a](java\tscript:alert(1))",
    "[a](<java\nscript:alert(1)>)",
    "[a](\x01javascript:alert(1))",
    "[a](vbscript:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "[a](file:///etc/passwd)",
    "[a](//evil.example)",
    "[a](/\\evil.example)",
    "[a](/api/v1/widgets/search)",
    "[a](#main)",
    "[a](?q=b)",
    "[a](mailto:a@b.example)",
    "[a](https:javascript:alert(1))",
    "[a](https:///evil.example)",
    "<javascript:alert(1)>",
    "<data:text/html,a>",
    "<a@b.example>",
    "[a]: javascript:alert(1)\n\n[a] *b*",
    "![a](javascript:alert(1))",
    '[a](https://b "c\\" onmouseover=\\"alert(1)")',
    '[a](https://b/"onmouseover="alert(1))',
    "[a](https://b/'><script>alert(1)</script>)",
    '[<img src=x onerror=alert(1)>](https://b "<script>")',
    "[![a](javascript:alert(1))](https://b)",
    "*a*\x00<script\x00>",
    "\u202e*a*<scr\u0000ipt>",
]
SAFE_ATTRIBUTES = {"href", "rel", "dir", "class", "title", "start"}
SAFE_TAGS = {
    *("p", "em", "strong", "code", "pre", "a", "br", "hr", *("h3", "h4", "h5", "h6")),
    *("ul", "ol", "li", "blockquote"),
}


def assert_is_safe(html: str) -> None:
    for node in elements(html):
        assert node.tag in SAFE_TAGS, html
        assert set(node.attributes) <= SAFE_ATTRIBUTES, html
        if node.tag == "a":
            assert node.attributes["href"].lower().startswith(("http://", "https://"))
            assert node.attributes["rel"] == "nofollow noopener"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_has_only_safe_elements_and_links(text: str) -> None:
    # With another block, so that it is read as Markdown.
    for each in (text, f"- x\n\n{text}", f"> {text}", f"**{text}**\n\n# x"):
        assert_is_safe(render_markdown(each))


PIECES = [
    *("*", "**", "_", "`", "```", "~~~\n", "[", "](", ")", "]", "![", "<", ">", "\n", "\n\n"),
    *("- ", "1. ", "> ", "# ", "\t", "    ", "\\", "&", "&lt;", '"', "'", "javascript:", "---\n"),
    *("https://a.example/", "<b onclick=a>", "[a]: ", "a", "b c", "天", "\u202e", "\x00", "😀"),
]


def test_random_markdown_is_always_safe() -> None:
    generator = random.Random(1)  # noqa: S311
    for _ in range(300):
        text = "".join(generator.choices(PIECES, k=generator.randrange(1, 30)))
        assert_is_safe(render_markdown(text))


# What each is repeated to the limits of a text: alone, or with words in between
PATHOLOGICAL = [
    *(
        "[",
        "![[",
        "[a](",
        "[a](b",
        "_[a](",
        "*[",
        "[](",
        "[a *",
        "[[]",
        "[a]: b\n",
        "*a_ ",
        "**a** ",
    ),
    *("e`", "`a` ", ">", "> a\n", "1. a\n", "\n1. ", "- a\n", "a\n=\n", "a\n", "a  \n", "#", "&a;"),
    *(
        "<http://a",
        "\\*",
        "[x](http://a) ",
        "\n",
        " \n",
        " ",
        "\t",
        "7",
        "a",
        "_",
        "\u0301",
        "\u0301\u0316",
    ),
]
# Function calls, which depend neither on the machine nor on its load. A list of 1,500 lines takes
# 200,000 of them and a tenth of a second.
MAX_CALLS = 400_000


def count_calls(text: str) -> int:
    """Return the number of function calls that it takes to render a text."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        render_markdown(text)
    finally:
        sys.setprofile(None)
    return calls


def largest_text(unit: str, filler: str, length: int) -> str:
    """Return the unit as often as the limits allow, with the filler in between."""
    delimiters = sum(unit.count(each) for each in DELIMITERS)
    most = length * MAX_DELIMITERS // MAX_LENGTH // max(delimiters, 1)
    times = min(length // len(unit), most) if delimiters else length // len(unit)
    rest = (length - times * len(unit)) // times
    return (unit + (filler * rest)[:rest]) * times


@pytest.mark.parametrize("filler", ["", "a"], ids=["alone", "long words"])
@pytest.mark.parametrize("unit", PATHOLOGICAL)
def test_a_text_takes_time_in_proportion_to_its_length(unit: str, filler: str) -> None:
    render_markdown("*warm up*")
    # Counting is slow, so a part of the longest text stands for all of it.
    eighth = count_calls(largest_text(unit, filler, MAX_LENGTH // 8))
    quarter = count_calls(largest_text(unit, filler, MAX_LENGTH // 4))
    assert 4 * quarter < MAX_CALLS
    assert quarter <= 2.5 * eighth or quarter < 5_000


BEYOND = {
    "length": "*a* " + "b" * MAX_LENGTH,
    "delimiters": "*a* " + "[" * MAX_DELIMITERS,
    "lines": "*a* " + "a\n" * MAX_DELIMITERS,
    "addresses": "*a* " + ("[a](b" + "c" * 100) * 100,
}


@pytest.mark.parametrize("text", BEYOND.values(), ids=BEYOND)
def test_a_text_beyond_a_limit_is_plain(text: str) -> None:
    (paragraph,) = elements(render_markdown(text))
    assert (paragraph.tag, "".join(paragraph.texts)) == ("p", text)


def test_a_long_readme_with_many_links_is_rendered() -> None:
    line = "- See [the documentation](https://docs.example/a/long/path) of `clock`, *please*.\n"
    text = line * 120
    assert render_markdown(text).count("<a ") == 120


def test_newlines_do_not_delay_the_page(app_with: Callable[..., Flask]) -> None:
    text = "\n" * 10_000
    clock = document("acme/clock", version(releaseNotes="\n" * 65_000), description=text)
    client = app_with({**clock, "about": {"readme": "\n" * 65_000}}).test_client()
    assert client.get("/widgets/acme/clock").status_code == 200
    start = time.thread_time()
    assert client.get("/widgets/acme/clock").status_code == 200
    # 11 seconds with a search that takes quadratic time, some milliseconds otherwise
    assert time.thread_time() - start < 3  # seconds


@pytest.mark.parametrize("text", ["[a]()", "![a]()", "b [a]() c", "[a]( )", "[*a*]()"])
def test_a_link_without_an_address_is_text(text: str) -> None:
    html = render_markdown(f"**x** {text}")
    assert "<a" not in html
    shown = "".join(elements(html)[0].texts)
    assert shown.replace(" ", "") == f"x{text}".replace(" ", "").replace("*", "")


def test_only_a_link_without_an_address_is_plain() -> None:
    (paragraph,) = elements(render_markdown("[a]() b"))
    assert "".join(paragraph.texts) == "[a]() b"
