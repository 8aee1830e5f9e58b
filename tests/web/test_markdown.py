"""Markdown in descriptions and release notes: what is rendered, and what cannot be."""

import random
import time

import pytest
from markup import elements

from catalog.web.markdown import MAX_LENGTH, render_markdown

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


PATHOLOGICAL = {
    "brackets": "[",
    "images": "![[",
    "links": "[a](b",
    "emphasis": "*a_ ",
    "code": "e`",
    "quotes": ">",
    "items": "1. a\n",
    "headings": "a\n=\n",
}


@pytest.mark.parametrize("pattern", PATHOLOGICAL.values(), ids=PATHOLOGICAL)
def test_pathological_text_takes_a_bounded_time(pattern: str) -> None:
    render_markdown("*warm up*")
    text = (pattern * MAX_LENGTH)[:MAX_LENGTH]
    start = time.thread_time()
    render_markdown(text)
    # At most 0.5 seconds were measured.
    assert time.thread_time() - start < 15  # seconds


def test_text_over_the_limit_is_plain() -> None:
    text = "*a* " * (MAX_LENGTH // 4)
    assert "<em>" in render_markdown(text)
    (paragraph,) = elements(render_markdown(text + "b"))
    assert "".join(paragraph.texts) == text + "b"
