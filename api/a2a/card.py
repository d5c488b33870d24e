"""The card of an agent: a document with which clients find out what it does and how it is called.

It has the fields of versions 1.0 and 0.3 of the protocol side by side, since clients of each ignore those of the other.
"""

from typing import Any

from api.a2a.protocol import ProtocolVersion
from canvas.document import parsing
from canvas.errors import InvalidCanvas
from components.nodes.flow import form_fields
from store.agents.canvases import StoredCanvas
from store.agents.versions import Version

_TEXT, _JSON = "text/plain", "application/json"


def agent_card(root: str, agent: StoredCanvas, version: Version) -> dict[str, Any]:
    """Return the card of an agent by its published version. `root` is the address of the API."""
    url = f"{root}/api/v1/a2a/{agent.id.hex}"
    title = agent.title or agent.id.hex
    description = agent.description or f"Runs the agent {title}."
    fields = _form_text(version)
    return {
        "name": title,
        "description": description,
        "version": version.id.hex,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": each.value} for each in ProtocolVersion
        ],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "capabilities": {"streaming": True, "pushNotifications": False},
        "defaultInputModes": [_TEXT, _JSON, "image/*", "application/octet-stream"],
        "defaultOutputModes": [_TEXT, _JSON],
        "skills": [
            {
                "id": agent.id.hex,
                "name": title,
                "description": f"{description} {fields}".strip(),
                "tags": list(_tags(agent)) or ["agent"],
            }
        ],
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "httpAuthSecurityScheme": {"scheme": "bearer"}}
        },
        "security": [{"token": []}],
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
    }


def _form_text(version: Version) -> str:
    """Return a sentence about the fields of Begin, which a data part fills; "" if there are none."""
    try:
        form = form_fields.fields_of(parsing.parse(version.dsl).begin_params.get("inputs"))
    except InvalidCanvas:
        return ""
    return f"A data part may have values of these fields: {', '.join(form)}." if form else ""


def _tags(agent: StoredCanvas) -> list[str]:
    return [tag for each in (agent.tags or "").split(",") if (tag := each.strip())]
