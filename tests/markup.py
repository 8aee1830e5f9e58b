"""What a page holds, read as a browser would: its elements with their attributes and text."""

from functools import lru_cache
from html.parser import HTMLParser
from typing import NamedTuple

from werkzeug.test import TestResponse

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    texts: list[str]

    @property
    def text(self) -> str:
        """All text in the element, spaces made one."""
        return " ".join("".join(self.texts).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attributes}, [])
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attributes}, []))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        element = self.open.pop()
        assert element.tag == tag, f"{element.tag} is closed by {tag}"

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.texts.append(data)


@lru_cache(maxsize=4)
def _parsed(page: str) -> list[Element]:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader.elements


def elements(page: str, tag: str = "", **attributes: str) -> list[Element]:
    """The elements of the page with this tag and these attributes; class_ is one of several."""
    wanted_class = attributes.pop("class_", None)
    return [
        element
        for element in _parsed(page)
        if tag in ("", element.tag)
        and (wanted_class is None or wanted_class in element.attributes.get("class", "").split())
        and all(element.attributes.get(name) == value for name, value in attributes.items())
    ]


def element(page: str, tag: str = "", **attributes: str) -> Element:
    """The one element of the page that elements() finds."""
    (found,) = elements(page, tag, **attributes)
    return found


def cards(page: str) -> list[str]:
    """The addresses of the widgets that a page shows, in its order."""
    links = [link.attributes["href"] for link in elements(page, "a")]
    return [link for link in links if link.startswith("/widgets/")]


def assert_page(response: TestResponse, status: int) -> str:
    """Hold an answer against what every page is; answers its text."""
    assert (response.status_code, response.mimetype) == (status, "text/html")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    element(response.text, "main", id="main")
    return response.text
