"""The route that lists the tools of plugins."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.replies import success
from api.requests.auth import ApiTokenCaller
from components import plugins

router = APIRouter(tags=["components"])


@router.get("/plugin/tools")
def plugin_tools(principal: ApiTokenCaller) -> Response:
    """List name, description and parameters of each plugin tool. All tenants have the same tools."""
    return success([dict(plugin.metadata) for plugin in plugins.list_loaded()])
