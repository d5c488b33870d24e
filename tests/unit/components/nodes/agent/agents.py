"""Helpers of the Agent tests: a scripted model, an echo tool, and the record of its calls."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from canvas.outcome import Outcome
from components import tools
from components.base import Effect
from components.nodes.agent.agent import agent
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from providers.models.chat.catalogue import open_chat
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import RecordedRequest, Script, scripted_spec
from providers.models.types.chat import ChatModel
from tests.fakes import FakeContext, run

Answer = Callable[[Mapping[str, Any]], Any]


class EchoParams(ToolParams):
    """The author sets `top`, the model passes `query`."""

    secrets = ("api_key",)

    api_key: str = ""
    query: str = "of the canvas"
    top: int = 3


@dataclass
class Log:
    """Records the names of logged events."""

    warnings: list[str] = field(default_factory=list)

    def warning(self, event: str, **_: Any) -> None:
        self.warnings.append(event)


@dataclass
class Calls:
    """The calls of a tool, in the order in which they began."""

    arguments: list[Mapping[str, Any]] = field(default_factory=list)
    params: list[EchoParams] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0


def echo_tool(
    calls: Calls, answer: Answer | None = None, name: str = "Echo", effect: Effect = "idempotent", **settings: Any
) -> Tool[EchoParams]:
    """Return a tool that answers with its query, or with `answer(arguments)`."""

    async def call(params: EchoParams, arguments: Mapping[str, Any], ctx: Any) -> ToolResult:
        calls.arguments.append(arguments)
        calls.params.append(params)
        calls.running += 1
        calls.most_at_once = max(calls.most_at_once, calls.running)
        try:
            for _ in range(3):  # others may begin meanwhile
                await asyncio.sleep(0)
            found = answer(arguments) if answer else f"echo of {arguments.get('query')}"
            if isinstance(found, Awaitable):
                found = await found
        finally:
            calls.running -= 1
        return found if isinstance(found, ToolResult) else ToolResult({"content": found}, found)

    arguments = {
        "query": Argument("string", "what to echo", required=True, default="{sys.query}"),
        "times": Argument("integer", "how often", default=1),
    }
    return Tool(
        name, name.lower(), EchoParams, "Echoes.", arguments, call, effect=effect, empty_outputs=None, **settings
    )


@contextmanager
def only_tools(*known_tools: Tool[Any]) -> Iterator[None]:
    """Make these the only tools inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        by_name = {tool.name.lower(): tool for tool in known_tools}
        patch.setattr(tools, "find", lambda name: by_name.get(name.lower()))
        yield


def scripted(script: Script, llm_id: str = "m") -> ChatModel:
    async def no_sleep(_: float) -> None:
        pass

    return open_chat(scripted_spec(llm_id), scripted=script, retry_policy=RetryPolicy(sleep=no_sleep))


def ask(script: Script, ctx: FakeContext | None = None, **params: Any) -> tuple[Outcome, FakeContext]:
    """Run an Agent whose models answer from a script; return its outcome and context."""
    ctx = ctx or FakeContext(globals={"sys.query": "Q"})
    ctx.name = ctx.name or "Lead"
    ctx.models = {"m": scripted(script), "sub": scripted(script, "sub")}
    return run(agent, {"llm_id": "m", **params}, ctx), ctx


def calls(*named: tuple[str, Any]) -> dict[str, Any]:
    """Return the part of a script rule that makes these tool calls."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


def texts(request: RecordedRequest) -> list[tuple[str, Any]]:
    """Return the messages of a request as (role, content)."""
    return [(message["role"], message["content"]) for message in request.messages]


ECHO = {"component_name": "Echo", "name": "Echo", "params": {}}
HELPER: dict[str, Any] = {
    "component_name": "Agent",
    "id": "Agent:Sub",
    "name": "Sub Agent",
    "params": {"llm_id": "sub", "sys_prompt": "You help {sys.query}.", "user_prompt": "do X"},
}
