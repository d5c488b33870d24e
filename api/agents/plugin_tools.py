"""The route that lists the tools of plugins."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.replies import success
from api.requests.auth import ApiTokenCaller
from api.requests.scopes import NEEDS_READ, OF_ONE_AGENT
from components import plugins

router = APIRouter(tags=["components"], dependencies=[NEEDS_READ])


@router.get("/plugin/tools", dependencies=[OF_ONE_AGENT])
def plugin_tools(principal: ApiTokenCaller) -> Response:
    """List name, description and parameters of each plugin tool. All tenants have the same tools."""
    return success([dict(plugin.metadata) for plugin in plugins.list_loaded()])
