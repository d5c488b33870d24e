"""A web page as Markdown: headings, lists, links, tables and code, converted by html-to-markdown.

URLs are made absolute; links to scripts and inline data become plain text, and hidden elements are removed.
"""

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from components.text.extraction.file_kinds import library_missing

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

MAX_URL_CHARS = 2000  # characters; a longer URL is dropped, also because a long base URL is repeated in every link
MAX_LINKS = 5_000  # links and images of a page; later links become plain text, later images are dropped

INVISIBLE_TAGS = frozenset(
    {
        "script", "style", "template", "noscript", "head", "svg", "canvas", "iframe", "object", "embed", "audio",
        "video", "select", "datalist", "input", "textarea",
    }
)  # fmt: skip
HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)

_LINKED = frozenset({"http", "https", "mailto", "tel"})


def to_markdown(top: "LexborNode", base: str) -> str:
    """Return an element as Markdown; changes its tree. `base` is the URL of its page."""
    try:
        from html_to_markdown import ConversionOptions, convert
    except ImportError as error:
        raise library_missing("html", "Web pages") from error
    remove_invisible(top)
    _resolve_links(top, base)
    options = ConversionOptions(bullets="-", compact_tables=True, extract_metadata=False, autolinks=False)
    return (convert(top.html or "", options).content or "").strip()


def absolute_url(base: str, address: str) -> str:
    """Return a link's absolute URL; "" for a URL that cannot be linked to."""
    if len(base) > MAX_URL_CHARS or len(address) > MAX_URL_CHARS:
        return ""
    try:
        whole = urljoin(base, address.strip())
        scheme = urlsplit(whole).scheme.lower()
    except ValueError:
        return ""
    return quote(whole, safe="%/:?#[]@!$&'*+,;=~-._") if scheme in _LINKED else ""


def remove_invisible(top: "LexborNode") -> None:
    """Remove what readers do not see: comments, hidden elements, and elements without text of their own."""
    for node in list(top.traverse(include_text=True)):
        if node.is_comment_node:
            node.decompose()
    for node in [each for each in top.css("*") if each.mem_id != top.mem_id and _is_invisible(each)]:
        node.decompose()


def _is_invisible(node: "LexborNode") -> bool:
    if (node.tag or "") in INVISIBLE_TAGS:
        return True
    attributes = node.attributes
    return "hidden" in attributes or bool(HIDDEN.search(attributes.get("style") or ""))


def _resolve_links(top: "LexborNode", base: str) -> None:
    """Make links and images absolute; a link without a usable URL becomes its text, such an image is removed."""
    for number, node in enumerate(top.css("a, img")):
        name = "href" if node.tag == "a" else "src"
        target = (node.attributes.get(name) or "") if number < MAX_LINKS else ""
        has_content = node.tag == "img" or bool(node.text(deep=True).strip()) or node.css_first("img") is not None
        address = absolute_url(base, target) if target and has_content else ""
        if address:
            node.attrs[name] = address
        elif not has_content or node.tag == "img":
            node.decompose()
        else:
            node.unwrap()
