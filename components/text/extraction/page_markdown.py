"""A web page as Markdown: headings, lists, links, tables and code, without what is no text.

Addresses are made absolute; those of scripts and inline data go, as do elements that a page hides. The tree is walked
without recursion, for pages are as deep as they like to be.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

MOST_NODES = 300_000  # that are read: elements and texts; no page that people read has as many
LONGEST_ADDRESS = 2000  # characters; longer ones lead nowhere, and a page may say one beginning for all its addresses
MOST_ADDRESSES = 5_000  # of a page; what follows is words alone

UNSPOKEN = frozenset(
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


def markdown_of(top: "LexborNode", base: str, *, with_links: bool = True) -> str:
    """The Markdown of an element. `base` is the address of its page; without links only words are left."""
    page = _Page(base, with_links)
    node = top
    for _ in range(MOST_NODES):
        following = page.enter(node)
        while following is None:
            page.leave(node)
            if node.mem_id == top.mem_id or node.parent is None:
                return page.text()
            following = node.next
            node = following or node.parent
        node = following
    return page.text()


def absolute(base: str, address: str) -> str:
    """An address of a page, whole; "" for one that leads to no page."""
    if len(base) > LONGEST_ADDRESS or len(address) > LONGEST_ADDRESS:
        return ""
    try:
        whole = urljoin(base, address.strip())
        scheme = urlsplit(whole).scheme.lower()
    except ValueError:
        return ""
    return quote(whole, safe="%/:?#[]@!$&'*+,;=~-._") if scheme in _LINKED else ""


@dataclass
class _Frame:
    """What was read so far of an element that puts something of its own around its text."""

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


class _Page:
    """The page as it is read: a stack of elements that are open."""

    def __init__(self, base: str, with_links: bool) -> None:
        self._base = base
        self._with_links = with_links
        self._frames: list[_Frame] = []
        self._result = ""
        self._addresses_left = MOST_ADDRESSES if with_links else 0
        self._open_marks: list[tuple[int, int]] = []  # of emphasis: (frame, pieces before it)

    def text(self) -> str:
        """All that was read, also where elements are still open."""
        while self._frames:
            frame = self._frames.pop()
            self._close(frame.node.tag or "", frame.node, frame)
        return self._result

    def enter(self, node: "LexborNode") -> "LexborNode | None":
        """Take in an element; its first child if there is something to read in it."""
        tag = node.tag or ""
        if not self._frames:
            self._frames.append(_Frame(node))
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
            frame.blocks.append(_fenced(node.text(deep=True)))
        elif tag.startswith("-") or is_unspoken(node):
            return None
        else:
            self._open(tag, node, frame)
            return node.child
        return None

    def _open(self, tag: str, node: "LexborNode", frame: _Frame) -> None:
        if tag in _OWN_TEXT:
            if tag != "a":
                frame.end_line()
            self._frames.append(_Frame(node))
        elif tag in _BLOCKS:
            frame.end_line()
        elif tag in _MARKS and node.child is not None:
            self._open_marks.append((len(self._frames), len(frame.line)))

    def leave(self, node: "LexborNode") -> None:
        """The end of an element that was entered, or of one that had nothing in it."""
        frame = self._frames[-1]
        tag = node.tag or ""
        if frame.node.mem_id == node.mem_id:
            self._frames.pop()
            self._close(tag, node, frame)
        elif tag in _BLOCKS and not is_unspoken(node):
            frame.end_line()
        elif tag in _MARKS and node.child is not None and not is_unspoken(node):
            self._mark(_MARKS[tag], frame)

    def _mark(self, mark: str, frame: _Frame) -> None:
        """Put emphasis around what was read since, if it stands on one line."""
        depth, before = self._open_marks.pop()
        if depth != len(self._frames) or before > len(frame.line):
            return
        text = "".join(frame.line[before:])
        inner = text.strip()
        if inner and "\n" not in inner and self._with_links:
            start = len(text) - len(text.lstrip())
            text = f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"
        frame.line[before:] = [text]

    def _close(self, tag: str, node: "LexborNode", frame: _Frame) -> None:
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

    def _link(self, node: "LexborNode", frame: _Frame) -> str:
        before = " " if frame.line and frame.line[0].startswith(" ") else ""
        after = " " if frame.line and frame.line[-1].endswith(" ") else ""
        text = " ".join(_HEADING.sub("", frame.text("\n")).split())
        target = node.attributes.get("href") or ""
        address = self._absolute(target) if text else ""
        shown = f"[{text}]({address})" if address else text
        return f"{before}{shown}{after}"

    def _image(self, node: "LexborNode") -> str:
        source = node.attributes.get("src") or ""
        address = self._absolute(source)
        return f"![{' '.join((node.attributes.get('alt') or '').split())}]({address})" if address else ""

    def _absolute(self, address: str) -> str:
        if not address or self._addresses_left == 0:
            return ""
        self._addresses_left -= 1
        return absolute(self._base, address)


def is_unspoken(node: "LexborNode") -> bool:
    """Whether an element is no text of the page, or hidden."""
    if (node.tag or "") in UNSPOKEN:
        return True
    attributes = node.attributes
    return "hidden" in attributes or bool(HIDDEN.search(attributes.get("style") or ""))


def _item(text: str, of: _Frame) -> str:
    """One item of a list, its further lines below its first."""
    mark = f"{_first_number(of) + of.count - 1}." if of.node.tag == "ol" else "-"
    return f"{mark} {text}".replace("\n", "\n" + " " * (len(mark) + 1)) if text else ""


def _first_number(of: _Frame) -> int:
    start = of.node.attributes.get("start") or "1"
    return int(start) if start.isascii() and start.isdigit() and len(start) < 9 else 1


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    stripped = text.strip("\n")
    return f"{fence}\n{stripped}\n{fence}" if stripped.strip() else ""


def _table(rows: list[list[str]]) -> list[str]:
    """A table, its first row as the head; nothing if all cells are empty."""
    rows = [row for row in rows if any(row)]
    if not rows:
        return []
    width = max(map(len, rows))
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
    return ["\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])]
