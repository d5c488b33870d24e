"""A web page as HTML that is safe to store and show: without scripts, styles, comments and executable URLs."""

from typing import TYPE_CHECKING

from components.text.extraction.page_markdown import is_invisible

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_ADDRESSES = frozenset({"href", "src", "srcset", "action", "formaction", "poster", "data", "background", "xlink:href"})
_EXECUTABLE_SCHEMES = ("javascript:", "vbscript:", "data:")


def sanitize(body: "LexborNode") -> str:
    """Remove everything unsafe from the tree of a page's body and return its HTML."""
    for node in list(body.traverse(include_text=True)):
        if node.is_comment_node:
            node.decompose()
    for node in [each for each in body.css("*") if each.mem_id != body.mem_id and is_invisible(each)]:
        node.decompose()
    for node in [body, *body.css("*")]:
        for name, value in list(node.attributes.items()):
            if name.startswith("on") or name == "style" or (name in _ADDRESSES and _is_executable(value or "")):
                del node.attrs[name]
    return body.html or ""


def _is_executable(address: str) -> bool:
    """Return whether a URL is a script or inline data. Browsers ignore whitespace and control characters in it."""
    return "".join(address.split()).lstrip("\0\x01\x02\x03").lower().startswith(_EXECUTABLE_SCHEMES)
