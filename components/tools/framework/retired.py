"""Tools that no longer exist but that stored canvases name.

RAGFlow refuses such a canvas. Easel loads it, and only a node with such a tool fails when it runs.
"""

from collections.abc import Mapping
from typing import Any

from canvas.errors import ToolError
from components.context import NodeContext
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult

_QUERY = {"query": Argument("string", "What to search for.", required=True, default="{sys.query}")}


def _retired_tool(name: str, function: str) -> Tool[ToolParams]:
    async def refuse(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
        raise ToolError(f"Can't import {name}")

    return Tool(
        name,
        function,
        ToolParams,
        description="This search is no longer available. Use another tool.",
        arguments=_QUERY,
        call=refuse,
        effect="pure",
        empty_outputs=None,
        errors_are_bare=True,
    )


RETIRED: tuple[Tool[ToolParams], ...] = (_retired_tool("Bing", "bing_search"),)
