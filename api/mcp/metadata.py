"""The metadata of `/mcp` as a protected resource (RFC 9728), which MCP clients read after a 401.

Easel issues no OAuth tokens and names no authorization server: a client sends an API token as a bearer token.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from api.http.replies import json_reply

router = APIRouter(tags=["mcp"])

PATH = "/.well-known/oauth-protected-resource"


class ResourceReply(BaseModel):
    """A protected resource."""

    resource: str
    resource_name: str
    bearer_methods_supported: list[str]


@router.get(PATH, operation_id="describe_api_resource", response_model=ResourceReply)
@router.get(f"{PATH}/mcp", response_model=ResourceReply)
def describe_resource(request: Request) -> Response:
    """Describe how clients of `/mcp` sign in: with an API token as a bearer token."""
    return json_reply(
        {
            "resource": f"{_root_of(request)}/mcp",
            "resource_name": "Easel",
            "bearer_methods_supported": ["header"],
        }
    )


def url_of(request: Request) -> str:
    """Return the address of the metadata."""
    return f"{_root_of(request)}{PATH}/mcp"


def _root_of(request: Request) -> str:
    return str(request.base_url).rstrip("/")
