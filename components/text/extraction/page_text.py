"""The text of a web page (`clean_html` of Invoke).

Each block of the page is a line, with collapsed whitespace and headings marked as in Markdown; `<br>` breaks a line.
Tables stay HTML and come at the end. Scripts, styles and comments are left out.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from canvas.errors import NodeFailure
from components.text.extraction import charsets
from providers.isolation.limited_process import in_limited_process
from providers.isolation.untrusted_threads import in_untrusted_thread

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

P = ParamSpec("P")
T = TypeVar("T")

MAX_NESTING = 512  # nested elements; browsers show no deeper ones, and the cost of a page grows with its depth
SMALL_PAGE = 16 * 1024  # bytes or characters; any page of this size takes less than 0.1 s, so a thread may read it
MAX_TAGS = 300_000  # opening and closing tags
MAX_ATTRIBUTES = 1000  # of a tag; the cost of a tag grows with the square of their number

_INVISIBLE_TAGS = frozenset({"script", "style", "template"})
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "dialog", "dir", "div", "dl",
        "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "legend", "li", "main",
        "menu", "nav", "ol", "optgroup", "option", "p", "pre", "search", "section", "select", "summary", "ul",
        *_HEADINGS,
    }
)  # fmt: skip
_TAG = re.compile(
    r"""<(?:(?P<comment>!--)|(?P<closing>/?)(?P<name>[a-zA-Z][^\s/>]*+)"""
    r"""(?P<attributes>(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?)*+))"""
)
_ATTRIBUTE = re.compile(r"""[^\s/=][^\s/=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|\S*+))?""")
_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
}
"""Elements whose content has no tags, and the pattern of their end."""
_FORMATTING = frozenset(
    {
        "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
    }
)  # fmt: skip
"""A closing tag of these ends the innermost such element, even around open blocks."""
_PLAIN = frozenset(
    {
        "abbr", "bdi", "bdo", "cite", "data", "del", "dfn", "ins", "kbd", "label", "map", "mark", "output", "q",
        "ruby", "samp", "span", "sub", "sup", "time", "var",
    }
)  # fmt: skip
"""A closing tag of these does not end an element around an open block."""
_BARRIERS = frozenset(
    {
        "applet", "caption", "marquee", "object", "select", "table", "template",
    }
)  # fmt: skip
"""A closing tag inside these does not end an element around them."""
_NEVER_NESTED = frozenset(  # void, or closed by the next one of their kind
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
        "p", "li", "dt", "dd", "option", "optgroup", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "a",
        "html", "head", "body", "frame", "button",
    }
)  # fmt: skip


async def read_page(size: int, read: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run `read` for a page of `size` bytes: in a thread if the page is small, else in a process with limits."""
    place = in_untrusted_thread if size <= SMALL_PAGE else in_limited_process
    return await place(read, *arguments, **named)


def extract_body_text(content: bytes, content_type: str, *, is_page: bool) -> str:
    """Return the text of an HTTP body; with `is_page` the text of the web page."""
    declared = charsets.find_charset(content_type)
    if declared:
        text = content.decode(declared, "replace")
    else:
        is_marked_up = is_page or "html" in content_type or "xml" in content_type
        text = charsets.decode(content, may_declare=is_marked_up)
    return extract_page_text(text) if is_page else text


def extract_page_text(html: str) -> str:
    """Return the text of a page, "" if it has none. Large pages take long, so do not call this on an event loop.

    Raises NodeFailure for a page that is nested too deeply, and if the library is not installed.
    """
    page = parse_page(html, remedy=" Use it without clean_html.")
    if page.body is None:
        return ""
    blocks = _Blocks()
    _read(page.body, blocks)
    return "\n".join([*blocks.lines, *blocks.tables])


def parse_page(html: str, *, remedy: str = "") -> "LexborHTMLParser":
    """Parse a page. Raises NodeFailure like `extract_page_text`; `remedy` is appended to the message of that error."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise NodeFailure('Reading web pages needs the extra "html": pip install easel[html]') from error
    _check(html, remedy)
    return LexborHTMLParser(html.encode("utf-8", "replace").decode())


class _Blocks:
    """The lines read so far, and the one that is being read."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tables: list[str] = []
        self._parts: list[str] = []
        self._mark = ""

    def add(self, text: str) -> None:
        self._parts.append(text)

    def end(self, mark: str = "") -> None:
        """End the current line; the next one begins with the mark."""
        line = " ".join("".join(self._parts).split())
        if line:
            self.lines.append(f"{self._mark} {line}" if self._mark else line)
        self._parts.clear()
        self._mark = mark

    def begin(self, mark: str = "") -> None:
        """Begin a new line. A mark whose line is still empty is kept for the new line."""
        self.end(mark or ("" if "".join(self._parts).strip() else self._mark))


def _read(top: "LexborNode", blocks: _Blocks) -> None:
    """Read a tree in document order, without recursion, because pages may be nested deeply."""
    node = top
    while True:
        following = _enter(node, blocks)
        while following is None:
            if node.tag in _BLOCKS:
                blocks.end()
            if node.mem_id == top.mem_id or node.parent is None:
                return
            following = node.next
            node = following or node.parent
        node = following


def _enter(node: "LexborNode", blocks: _Blocks) -> "LexborNode | None":
    """Read a node itself; return its first child if its content is to be read as well, else None."""
    tag = node.tag or ""
    if tag == "-text":
        blocks.add(node.text_content or "")
        return None
    if tag == "br":
        blocks.begin()
    elif tag == "table":
        blocks.end()
        blocks.tables.append(_table(node))
        return None
    elif tag in _BLOCKS:
        blocks.begin(_HEADINGS.get(tag, ""))
    return None if tag in _INVISIBLE_TAGS or tag.startswith("-") else node.child


def _table(node: "LexborNode") -> str:
    """Return a table as HTML, without scripts, styles and comments."""
    for unspoken in node.css(", ".join(sorted(_INVISIBLE_TAGS))):
        unspoken.decompose()
    for each in list(node.traverse(include_text=True)):
        if each.is_comment_node:
            each.decompose()
    return node.html or ""


def _check(html: str, remedy: str) -> None:
    """Raise NodeFailure for a page that would take long to read.

    This is an estimate that a malicious page can evade, so larger pages are read in a process with limits.
    """
    open_names: list[str] = []
    position = 0
    for _ in range(MAX_TAGS):
        tag = _TAG.search(html, position)
        if tag is None:
            return
        position = tag.end()
        if tag["comment"]:
            position = html.find("-->", position)
            if position < 0:
                return
            continue
        if len(tag["attributes"]) > MAX_ATTRIBUTES:
            count = sum(1 for _ in _ATTRIBUTE.finditer(tag["attributes"]))
            if count > MAX_ATTRIBUTES:
                raise NodeFailure(f"A tag of the page has more than {MAX_ATTRIBUTES:,} attributes.{remedy}")
        name = tag["name"].lower()
        if tag["closing"]:
            _close(name, open_names)
        elif name in _RAW:
            end = _RAW[name].search(html, position)
            if end is None:
                return
            position = end.start()
        elif name not in _NEVER_NESTED:
            open_names.append(name)
            if len(open_names) > MAX_NESTING:
                raise NodeFailure(f"The page nests its elements deeper than {MAX_NESTING}.{remedy}")
    raise NodeFailure(f"The page has more than {MAX_TAGS:,} tags.{remedy}")


def _close(name: str, open_names: list[str]) -> None:
    """Remove the elements that a closing tag ends from the open ones."""
    if name in _NEVER_NESTED:
        return
    for index in range(len(open_names) - 1, -1, -1):
        each = open_names[index]
        if each == name:
            if name in _FORMATTING:
                del open_names[index]
            else:
                del open_names[index:]
            return
        if each in _BARRIERS or (name in _PLAIN and each not in _PLAIN | _FORMATTING):
            return
