"""What the Agents of a canvas offer of MCP servers: tools by name, with the words that their models read (tools 7).

An author has seen a tool's description and schema, and the document keeps them. A server may change its words later,
for whatever reason; `digest_of` tells whether they are still those that somebody has seen.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})  # of JSON schema
_LEVELS = 100  # as deep as a request's body may be


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool of a server as a document has it. `server` is the id that the author's editor wrote."""

    server: str
    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)


def offered_tools(dsl: Any) -> Iterator[OfferedTool]:
    """Every tool of an MCP server that an Agent or sub-agent of a document names with a schema of its arguments."""
    yield from _offers(dsl, _LEVELS)


def schema_in(told: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema of a tool's arguments as a document has it; None where the document has none.

    Editors write it as `inputSchema`. `parameters` is understood too: a schema, or an object that has for each argument
    its schema, in which `required` is true or false, or its type.
    """
    if isinstance(schema := told.get("inputSchema"), Mapping):
        return schema
    parameters = told.get("parameters")
    if not isinstance(parameters, Mapping) or not parameters:
        return None
    if parameters.get("type") == "object" or isinstance(parameters.get("properties"), Mapping):
        return parameters
    properties = {str(name): _argument(said) for name, said in parameters.items()}
    described = {str(name): said for name, said in parameters.items() if isinstance(said, Mapping)}
    needed = [name for name, said in described.items() if said.get("required") is True]
    return {"type": "object", "properties": properties, **({"required": needed} if needed else {})}


def _argument(said: Any) -> dict[str, Any]:
    if isinstance(said, Mapping):
        return {name: value for name, value in said.items() if name != "required" or isinstance(value, list)}
    if said in _TYPES:
        return {"type": said}
    return {"description": said} if isinstance(said, str) and said else {}


def digest_of(description: str, schema: Mapping[str, Any]) -> bytes:
    """SHA-256 of what a model is told of a tool. The order of a schema's keys does not count, every word does."""
    written = json.dumps([description, schema], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).digest()


def _offers(value: Any, levels: int) -> Iterator[OfferedTool]:
    if levels == 0:
        return
    if isinstance(value, Mapping):
        if isinstance(servers := value.get("mcp"), list):
            for server in servers:
                yield from _of_server(server)
        for inner in value.values():
            yield from _offers(inner, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _offers(inner, levels - 1)


def _of_server(server: Any) -> Iterator[OfferedTool]:
    tools = server.get("tools") if isinstance(server, Mapping) else None
    if not isinstance(server, Mapping) or not isinstance(tools, Mapping):
        return
    for name, told in tools.items():
        if not isinstance(told, Mapping):
            continue
        schema = schema_in(told)
        if schema is not None:
            yield OfferedTool(str(server.get("mcp_id") or ""), str(name), str(told.get("description") or ""), schema)
