"""WenCai: financial questions to iwencai.com. No back-end is implemented, so every call fails with an error.

DSL: `query`, `top_n`, `query_type`. Upstream the node loads, and every run ends with an empty `report` (docs/tools.md,
row T11).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from canvas.errors import ToolError
from components.context import NodeContext
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import one_of, positive

QUERY_TYPES = (
    "stock",
    "zhishu",
    "fund",
    "hkstock",
    "usstock",
    "threeboard",
    "conbond",
    "insurance",
    "futures",
    "lccp",
    "foreign_exchange",
)


class WenCaiParams(ToolParams):
    top_n: Annotated[int, positive("Top N")] = 10
    query_type: Annotated[str, one_of("Query type", QUERY_TYPES)] = "stock"


async def report(params: WenCaiParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    raise ToolError("WenCai is not available in this deployment")


WENCAI = Tool(
    "WenCai",
    "iwencai",
    WenCaiParams,
    description="Answers questions about Chinese stocks, funds, futures and indices.",
    arguments={"query": Argument("string", "The question, in words.", required=True, default="{sys.query}")},
    call=report,
    effect="pure",
    empty_outputs={"report": ""},
    main_output="report",
    outputs=("report",),
)
