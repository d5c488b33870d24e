"""XML from outside as a tree. Entities of its own are refused, so a short document cannot grow into a long one."""

from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from canvas.errors import ToolError

_NAMESPACE_END = "}"


def parse(data: bytes) -> Element:
    """The root; names carry their namespace as `{namespace}name`. Raises ToolError for what is no XML that is safe."""
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator=_NAMESPACE_END)
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        builder.start(_named(name), {_named(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        builder.end(_named(name))

    def declare(*entity: Any) -> None:
        raise ToolError("The answer is XML with entities of its own, which is not read.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = declare
    try:
        parser.Parse(data.lstrip(), True)  # a blank line before its declaration is all that some have wrong
        return builder.close()
    except (expat.ExpatError, AssertionError) as error:  # AssertionError: no element, or one left open
        raise ToolError(f"The answer is no XML: {error}") from None


def text_of(element: Element | None) -> str:
    """All text inside an element, nested markup included, on one line."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def _named(name: str) -> str:
    return f"{{{name}" if _NAMESPACE_END in name else name
