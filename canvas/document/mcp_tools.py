"""Tools of MCP servers in a canvas: what its Agents offer to their models, with description and schema.

The document stores the description and schema of a tool that its author has seen. A server may change them later;
`digest_of` serves to detect that.
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
    """A tool of an MCP server as stored in a document. `server` is the id that the author's editor wrote."""

    server: str
    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)


def offered_tools(dsl: Any) -> Iterator[OfferedTool]:
    """Yield every tool of an MCP server that an Agent or sub-agent of a document lists with an argument schema."""
    yield from _find_tools(dsl, _LEVELS)


def schema_in(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema of the arguments of a tool in a document; None if it has none.

    Editors write it as `inputSchema`. `parameters` is accepted too: a schema, or an object that maps each argument to
    its type, or to its schema, in which `required` is true or false.
    """
    if isinstance(schema := tool.get("inputSchema"), Mapping):
        return schema
    parameters = tool.get("parameters")
    if not isinstance(parameters, Mapping) or not parameters:
        return None
    if parameters.get("type") == "object" or isinstance(parameters.get("properties"), Mapping):
        return parameters
    properties = {str(name): _argument_schema(value) for name, value in parameters.items()}
    schemas = {str(name): value for name, value in parameters.items() if isinstance(value, Mapping)}
    required = [name for name, value in schemas.items() if value.get("required") is True]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _argument_schema(written: Any) -> dict[str, Any]:
    if isinstance(written, Mapping):
        return {name: value for name, value in written.items() if name != "required" or isinstance(value, list)}
    if written in _TYPES:
        return {"type": written}
    return {"description": written} if isinstance(written, str) and written else {}


def digest_of(description: str, schema: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 digest of a tool's description and schema. The order of a schema's keys does not matter."""
    text = json.dumps([description, schema], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _find_tools(value: Any, levels: int) -> Iterator[OfferedTool]:
    if levels == 0:
        return
    if isinstance(value, Mapping):
        if isinstance(servers := value.get("mcp"), list):
            for server in servers:
                yield from _tools_of_server(server)
        for inner in value.values():
            yield from _find_tools(inner, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_tools(inner, levels - 1)


def _tools_of_server(server: Any) -> Iterator[OfferedTool]:
    tools = server.get("tools") if isinstance(server, Mapping) else None
    if not isinstance(server, Mapping) or not isinstance(tools, Mapping):
        return
    for name, tool in tools.items():
        if not isinstance(tool, Mapping):
            continue
        schema = schema_in(tool)
        if schema is not None:
            yield OfferedTool(str(server.get("mcp_id") or ""), str(name), str(tool.get("description") or ""), schema)
