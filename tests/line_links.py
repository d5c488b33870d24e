"""Links of the documentation to lines of the code: ``[`symbol`](../path.py#L12)``, where line 12 defines the symbol.

`python -m tests.line_links` writes the current line into each link of docs/tour.md. A test checks them.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tour.md"
LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./([\w/]+\.py)(?:#L(\d+))?\)")


def main() -> int:
    """Correct every link; return 1 if a symbol is not defined in the linked file."""
    text = PAGE.read_text("utf-8")
    missing = [f"{path} does not define {symbol}" for symbol, path, line in links(text) if line is None]
    PAGE.write_text(LINK.sub(_corrected_link, text), "utf-8")
    sys.stderr.write("".join(f"{each}\n" for each in missing))
    return 1 if missing else 0


def links(text: str) -> Iterator[tuple[str, str, int | None]]:
    """Yield (symbol, path, line of its definition) of each link."""
    for match in LINK.finditer(text):
        yield match[1], match[2], line_of(match[1], match[2])


def wrong_links(text: str) -> list[str]:
    """Return the links whose line does not define their symbol."""
    found = ((match[0], match[3], line_of(match[1], match[2])) for match in LINK.finditer(text))
    return [link for link, written, line in found if written is None or line is None or int(written) != line]


def line_of(symbol: str, path: str) -> int | None:
    """Return the line in which a module defines a symbol (`decide`, `Executor.execute`), or None."""
    file = ROOT / path
    block: ast.AST | None = ast.parse(file.read_text("utf-8")) if file.exists() else None
    line = None
    for name in symbol.split("."):
        block = next((node for node in getattr(block, "body", ()) if name in _names(node)), None)
        line = getattr(block, "lineno", None)
    if block is None:
        found = ast.walk(ast.parse(file.read_text("utf-8"))) if file.exists() else ()
        line = next((node.lineno for node in found if "." not in symbol and symbol in _names(node)), None)  # pyright: ignore[reportAttributeAccessIssue]
    return line


def _corrected_link(match: re.Match[str]) -> str:
    return f"[`{match[1]}`](../{match[2]}#L{line_of(match[1], match[2])})"


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


if __name__ == "__main__":
    sys.exit(main())
