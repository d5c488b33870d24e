"""The main content of a web page, without the parts that every page of a site repeats.

Menus, headers, footers, forms and advertisements are removed. Of the rest, the main element is the one with the highest
score of its own paragraphs: long texts with commas score high, links do not count.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from components.text.extraction.page_markdown import is_invisible

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

MIN_CONTENT_CHARS = 200  # characters that a main element must have
_BOILERPLATE_TAGS = frozenset({"nav", "footer", "aside", "form", "button", "dialog", "menu"})
_ROLES = frozenset(
    {"navigation", "banner", "contentinfo", "complementary", "search", "dialog", "alert", "menu", "menubar"}
)
_NAMES = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|sidebar|footer|masthead|breadcrumbs?|cookies?|consent|banner|advert|ads?"
    r"|sponsor(?:ed)?|promo|related|share|sharing|social|comments?|disqus|newsletter|subscribe|popup|modal|pagination)"
    r"(?:$|[\s_-])",
    re.IGNORECASE,
)
_CONTENT_NAMES = re.compile(r"article|body|content|main|page|post|story|text", re.IGNORECASE)
_NEVER_DROPPED = frozenset({"html", "body", "main", "article"})
_PARAGRAPHS = frozenset({"p", "pre", "blockquote", "td", "li", "dd"})
_MIN_PARAGRAPH_CHARS = 25  # characters; shorter paragraphs do not score


def find_main_part(body: "LexborNode") -> "LexborNode":
    """Return the element with the page's main content, after removing the parts around it from the tree."""
    for node in list(_iter_boilerplate(body)):
        node.decompose()
    return _find_marked(body) or _find_best(body) or body


def _iter_boilerplate(body: "LexborNode") -> Iterator["LexborNode"]:
    """Yield the elements that are not main content; of nested ones, only the outermost."""
    node = body.child
    while node is not None and node.mem_id != body.mem_id:
        dropped = not (node.tag or "").startswith("-") and _is_boilerplate(node)
        if dropped:
            yield node
        following = None if dropped else node.child
        while following is None:
            following = node.next
            if following is None:
                parent = node.parent
                if parent is None or parent.mem_id == body.mem_id:
                    return
                node = parent
        node = following


def _is_boilerplate(node: "LexborNode") -> bool:
    tag = node.tag or ""
    if tag in _NEVER_DROPPED:
        return False
    if is_invisible(node) or tag in _BOILERPLATE_TAGS:
        return True
    attributes = node.attributes
    if (attributes.get("role") or "").lower() in _ROLES:
        return True
    if tag == "header":
        return not _is_within(node, "article")
    names = " ".join(attributes.get(name) or "" for name in ("class", "id"))
    return bool(_NAMES.search(names)) and not _CONTENT_NAMES.search(names)


def _is_within(node: "LexborNode", tag: str) -> bool:
    parent = node.parent
    while parent is not None and parent.tag != tag:
        parent = parent.parent
    return parent is not None


def _find_marked(body: "LexborNode") -> "LexborNode | None":
    """Return the element that the page itself marks as its main part, if there is a single one with enough text."""
    for selector in ("main article", "main, [role=main]", "article"):
        found = body.css(selector)
        if len(found) == 1 and len(found[0].text(deep=True).strip()) >= MIN_CONTENT_CHARS:
            return found[0]
    return None


def _find_best(body: "LexborNode") -> "LexborNode | None":
    """Return the element with the highest score. Each text counts once, for the innermost paragraph around it."""
    scores: dict[int, float] = {}
    nodes: dict[int, LexborNode] = {}
    open_ones: list[_Paragraph] = []
    links = 0
    for node, is_end in _walk(body):
        tag = node.tag or ""
        if tag == "-text" and open_ones and not is_end:
            open_ones[-1].add(node.text_content or "", is_linked=links > 0)
        elif tag == "a":
            links += -1 if is_end else 1
        elif tag in _PARAGRAPHS and not is_end:
            open_ones.append(_Paragraph())
        elif tag in _PARAGRAPHS:
            score = open_ones.pop().score
            share, parent = 1.0, node.parent
            for _ in range(2):
                if not score or parent is None or parent.tag == "html":
                    break
                nodes[parent.mem_id] = parent
                scores[parent.mem_id] = scores.get(parent.mem_id, 0.0) + score * share
                share, parent = 0.5, parent.parent
    return nodes[max(scores, key=lambda each: scores[each])] if scores else None


@dataclass
class _Paragraph:
    chars: int = 0  # characters outside of links
    commas: int = 0

    def add(self, text: str, *, is_linked: bool) -> None:
        if not is_linked:
            self.chars += len(text.strip())
            self.commas += text.count(",") + text.count("，")

    @property
    def score(self) -> float:
        return 0.0 if self.chars < _MIN_PARAGRAPH_CHARS else 1 + self.commas + min(self.chars / 100, 3)


def _walk(top: "LexborNode") -> "Iterator[tuple[LexborNode, bool]]":
    """Yield every node of a tree twice: (node, False) at its start and (node, True) at its end."""
    node = top
    while True:
        yield node, False
        following = node.child
        while following is None:
            yield node, True
            if node.mem_id == top.mem_id or node.parent is None:
                return
            following = node.next
            node = following or node.parent
        node = following
