"""A web page as Markdown: headings, lists, links, tables and code.

URLs are made absolute; script and inline data URLs are removed, and so are hidden elements. The tree is traversed
without recursion, because pages may be nested deeply.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

MAX_NODES = 300_000  # elements and texts that are read; far more than usual pages have
MAX_URL_CHARS = 2000  # characters; a longer URL is dropped, also because a long base URL is repeated in every link
MAX_LINKS = 5_000  # links of a page; later ones become plain text

INVISIBLE_TAGS = frozenset(
    {
        "script", "style", "template", "noscript", "head", "svg", "canvas", "iframe", "object", "embed", "audio",
        "video", "select", "datalist", "input", "textarea",
    }
)  # fmt: skip
HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)

_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "body", "caption", "center", "dd", "details", "dialog", "div", "dl", "dt",
        "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "html", "legend", "main", "nav", "p",
        "search", "section", "summary", "tbody", "tfoot", "thead", *_HEADINGS,
    }
)  # fmt: skip
_OWN_TEXT = frozenset({"a", "blockquote", "li", "ol", "ul", "table", "td", "th", "tr", "pre", *_HEADINGS})
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "code": "`", "kbd": "`", "samp": "`", "del": "~~", "s": "~~"}
_BLANKS = re.compile(r"[ \t\r\n\f\u00a0]+")
_SEVERAL = re.compile(r" {2,}")
_ROUND_BREAKS = re.compile(r" ?\n ?")
_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_LINKED = frozenset({"http", "https", "mailto", "tel"})


def to_markdown(top: "LexborNode", base: str, *, with_links: bool = True) -> str:
    """Return an element as Markdown. `base` is the URL of its page; without links the result is plain words."""
    page = _MarkdownBuilder(base, with_links)
    node = top
    for _ in range(MAX_NODES):
        following = page.enter(node)
        while following is None:
            page.leave(node)
            if node.mem_id == top.mem_id or node.parent is None:
                return page.text()
            following = node.next
            node = following or node.parent
        node = following
    return page.text()


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


@dataclass
class _OpenElement:
    """The content read so far of an element that adds Markdown around its content."""

    node: "LexborNode"
    blocks: list[str] = field(default_factory=list[str])
    line: list[str] = field(default_factory=list[str])
    rows: list[list[str]] = field(default_factory=list[list[str]])
    cells: list[str] = field(default_factory=list[str])
    count: int = 0  # items of a list

    def end_line(self) -> None:
        text = _ROUND_BREAKS.sub("\n", _SEVERAL.sub(" ", "".join(self.line))).strip()
        self.line.clear()
        if text:
            self.blocks.append(text)

    def text(self, between: str = "\n\n") -> str:
        self.end_line()
        return between.join(self.blocks)


class _MarkdownBuilder:
    """The state of the traversal: a stack of open elements."""

    def __init__(self, base: str, with_links: bool) -> None:
        self._base = base
        self._with_links = with_links
        self._frames: list[_OpenElement] = []
        self._result = ""
        self._addresses_left = MAX_LINKS if with_links else 0
        self._open_marks: list[tuple[int, int]] = []  # open emphasis: (frame, parts of its line before it)

    def text(self) -> str:
        """Close all open elements and return the text."""
        while self._frames:
            frame = self._frames.pop()
            self._close(frame.node.tag or "", frame.node, frame)
        return self._result

    def enter(self, node: "LexborNode") -> "LexborNode | None":
        """Read the start of an element; return its first child if its content is to be read, else None."""
        tag = node.tag or ""
        if not self._frames:
            self._frames.append(_OpenElement(node))
            return node.child
        frame = self._frames[-1]
        if tag == "-text":
            frame.line.append(_BLANKS.sub(" ", node.text_content or ""))
        elif tag == "br":
            frame.line.append("\n")
        elif tag == "hr":
            frame.end_line()
            frame.blocks.append("---")
        elif tag == "img":
            frame.line.append(self._image(node))
        elif tag == "pre":
            frame.end_line()
            frame.blocks.append(_fence(node.text(deep=True)))
        elif tag.startswith("-") or is_invisible(node):
            return None
        else:
            self._open(tag, node, frame)
            return node.child
        return None

    def _open(self, tag: str, node: "LexborNode", frame: _OpenElement) -> None:
        if tag in _OWN_TEXT:
            if tag != "a":
                frame.end_line()
            self._frames.append(_OpenElement(node))
        elif tag in _BLOCKS:
            frame.end_line()
        elif tag in _MARKS and node.child is not None:
            self._open_marks.append((len(self._frames), len(frame.line)))

    def leave(self, node: "LexborNode") -> None:
        """Read the end of an element."""
        frame = self._frames[-1]
        tag = node.tag or ""
        if frame.node.mem_id == node.mem_id:
            self._frames.pop()
            self._close(tag, node, frame)
        elif tag in _BLOCKS and not is_invisible(node):
            frame.end_line()
        elif tag in _MARKS and node.child is not None and not is_invisible(node):
            self._mark(_MARKS[tag], frame)

    def _mark(self, mark: str, frame: _OpenElement) -> None:
        """Put emphasis around the text since its opening mark, if the text is on one line."""
        depth, before = self._open_marks.pop()
        if depth != len(self._frames) or before > len(frame.line):
            return
        text = "".join(frame.line[before:])
        inner = text.strip()
        if inner and "\n" not in inner and self._with_links:
            start = len(text) - len(text.lstrip())
            text = f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"
        frame.line[before:] = [text]

    def _close(self, tag: str, node: "LexborNode", frame: _OpenElement) -> None:
        if not self._frames:
            self._result = frame.text()
            return
        outer = self._frames[-1]
        match tag:
            case "a":
                outer.line.append(self._link(node, frame))
            case "tr":
                outer.rows.append(frame.cells)
            case "td" | "th":
                outer.cells.append(" ".join(frame.text(" ").split()).replace("|", "\\|"))
            case "li":
                outer.count += 1
                outer.blocks.append(_item(frame.text("\n"), outer))
            case "ul" | "ol":
                outer.blocks.append(frame.text("\n"))
            case "blockquote":
                outer.blocks.append("\n".join(f"> {line}".rstrip() for line in frame.text().split("\n")))
            case "table":
                outer.blocks += [*filter(None, [frame.text()]), *_table(frame.rows)]
            case _:
                text = " ".join(frame.text(" ").split())
                outer.blocks.append(f"{_HEADINGS[tag]} {text}" if text else "")
        outer.blocks = outer.blocks if outer.blocks and outer.blocks[-1] else outer.blocks[:-1]

    def _link(self, node: "LexborNode", frame: _OpenElement) -> str:
        before = " " if frame.line and frame.line[0].startswith(" ") else ""
        after = " " if frame.line and frame.line[-1].endswith(" ") else ""
        text = " ".join(_HEADING.sub("", frame.text("\n")).split())
        target = node.attributes.get("href") or ""
        address = self._absolute_url(target) if text else ""
        link = f"[{text}]({address})" if address else text
        return f"{before}{link}{after}"

    def _image(self, node: "LexborNode") -> str:
        source = node.attributes.get("src") or ""
        address = self._absolute_url(source)
        return f"![{' '.join((node.attributes.get('alt') or '').split())}]({address})" if address else ""

    def _absolute_url(self, address: str) -> str:
        if not address or self._addresses_left == 0:
            return ""
        self._addresses_left -= 1
        return absolute_url(self._base, address)


def is_invisible(node: "LexborNode") -> bool:
    """Return whether an element is hidden or has no text for readers."""
    if (node.tag or "") in INVISIBLE_TAGS:
        return True
    attributes = node.attributes
    return "hidden" in attributes or bool(HIDDEN.search(attributes.get("style") or ""))


def _item(text: str, of: _OpenElement) -> str:
    """Return a list item; its further lines are indented below the first."""
    mark = f"{_first_number(of) + of.count - 1}." if of.node.tag == "ol" else "-"
    return f"{mark} {text}".replace("\n", "\n" + " " * (len(mark) + 1)) if text else ""


def _first_number(of: _OpenElement) -> int:
    start = of.node.attributes.get("start") or "1"
    return int(start) if start.isascii() and start.isdigit() and len(start) < 9 else 1


def _fence(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    stripped = text.strip("\n")
    return f"{fence}\n{stripped}\n{fence}" if stripped.strip() else ""


def _table(rows: list[list[str]]) -> list[str]:
    """Return a table with its first row as the header; [] if all cells are empty."""
    rows = [row for row in rows if any(row)]
    if not rows:
        return []
    width = max(map(len, rows))
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
    return ["\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])]
