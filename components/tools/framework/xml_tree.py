"""Parsing of untrusted XML. Documents that declare entities are refused, because entities can expand without bound."""

from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from canvas.errors import ToolError

_NAMESPACE_END = "}"


def parse(data: bytes) -> Element:
    """Return the root element; names have the form `{namespace}name`. Raises ToolError for invalid or unsafe XML."""
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator=_NAMESPACE_END)
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        builder.start(_qualified_name(name), {_qualified_name(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        builder.end(_qualified_name(name))

    def declare(*entity: Any) -> None:
        raise ToolError("The answer is XML with entities of its own. Such documents are not read.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = declare
    try:
        parser.Parse(data.lstrip(), True)  # some vendors send a blank line before the XML declaration
        return builder.close()
    except (expat.ExpatError, AssertionError) as error:  # AssertionError: no element, or one left open
        raise ToolError(f"The answer is not valid XML: {error}") from None


def text_of(element: Element | None) -> str:
    """Return all text of an element, nested elements included, on one line."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def _qualified_name(name: str) -> str:
    return f"{{{name}" if _NAMESPACE_END in name else name
