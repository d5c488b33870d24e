"""A web page as HTML that is safe to store and show: elements and attributes of an allow list, kept by nh3."""

from typing import TYPE_CHECKING

from components.text.extraction.file_kinds import library_missing
from components.text.extraction.page_markdown import remove_invisible

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

SCHEMES = frozenset({"http", "https", "mailto", "tel"})  # of URLs that are kept


def sanitize(body: "LexborNode") -> str:
    """Return the HTML of a page's body with harmless elements and attributes only; changes its tree."""
    try:
        import nh3
    except ImportError as error:
        raise library_missing("html", "Web pages") from error
    remove_invisible(body)
    return nh3.clean(body.html or "", url_schemes=set(SCHEMES), link_rel=None)
