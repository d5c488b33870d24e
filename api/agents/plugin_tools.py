"""The tools that plugins bring, as they describe themselves (tools 8)."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.auth import Caller
from api.http.replies import success
from components import plugins

router = APIRouter(tags=["components"])


@router.get("/plugin/tools")
def plugin_tools(principal: Caller) -> Response:
    """Name, description and parameters of each; all tenants have the same."""
    return success([dict(plugin.metadata) for plugin in plugins.loaded()])
