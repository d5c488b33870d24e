"""The main content of a web page, without the parts that every page of a site repeats, found by trafilatura."""

from typing import TYPE_CHECKING

from components.text.extraction.file_kinds import library_missing
from components.text.extraction.page_markdown import remove_invisible, to_markdown

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode


def extract_main_content(body: "LexborNode", base: str) -> str:
    """Return the main content as Markdown without links; all of a page that has none. Changes the tree."""
    try:
        from trafilatura import extract
    except ImportError as error:
        raise library_missing("html", "Web pages") from error
    remove_invisible(body)
    found = extract(
        f"<html>{body.html or ''}</html>",
        output_format="markdown",
        favor_recall=True,
        include_comments=False,
        include_links=False,
        include_images=False,
    )
    return found or to_markdown(body, base)
