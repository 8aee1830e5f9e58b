"""An HTML parser for tests: the elements of a page with their attributes and text."""

from functools import lru_cache
from html.parser import HTMLParser
from typing import NamedTuple

from werkzeug.test import TestResponse

VOID_TAGS = {"meta", "link", "input", "br", "img", "hr"}


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    texts: list[str]

    @property
    def text(self) -> str:
        """All text in the element, with runs of white space replaced by one space."""
        return " ".join("".join(self.texts).split())


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attributes}, [])
        self.elements.append(element)
        if tag not in VOID_TAGS:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attributes}, []))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID_TAGS:
            return
        element = self.open.pop()
        assert element.tag == tag, f"{element.tag} is closed by {tag}"

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.texts.append(data)


@lru_cache(maxsize=4)
def _parse(page: str) -> list[Element]:
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser.elements


def elements(page: str, tag: str = "", **attributes: str) -> list[Element]:
    """Return the elements with this tag and these attributes; class_ is one of their classes."""
    css_class = attributes.pop("class_", None)
    return [
        element
        for element in _parse(page)
        if tag in ("", element.tag)
        and (css_class is None or css_class in element.attributes.get("class", "").split())
        and all(element.attributes.get(name) == value for name, value in attributes.items())
    ]


def element(page: str, tag: str = "", **attributes: str) -> Element:
    """Return the element with this tag and these attributes; there must be just one."""
    (match,) = elements(page, tag, **attributes)
    return match


def cards(page: str) -> list[str]:
    """Return the links to widgets in a page, in their order, without suggestions."""
    links = [link.attributes for link in elements(page, "a") if "class" not in link.attributes]
    return [link["href"] for link in links if link["href"].startswith("/widgets/")]


def assert_page(response: TestResponse, status: int) -> str:
    """Assert that the response is a page with this status, and return its text."""
    assert (response.status_code, response.mimetype) == (status, "text/html")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    element(response.text, "main", id="main")
    return response.text
