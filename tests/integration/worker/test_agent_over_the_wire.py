"""An Agent with the real SDK, against a server that speaks the chat-completions protocol and a search engine's."""

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from components.context import THINK_END, THINK_START
from providers.models.vendors.accounts import AccountModel, VendorAccount
from store.runs import attempt_records
from tests.builders import says
from tests.integration.engine import Bench, Run, at_work
from worker.services.factory import ServiceConfig

MODEL = "m@OpenAI-API-Compatible"
SEARCHED = {"results": [{"title": "Prices", "url": "https://example.com/a", "content": "Up 4% in May."}]}
CALLS = [("call-1", "tavily_search_0", '{"query": "widget prices"}'), ("call-2", "tavily_search_0", '{"query": "May"}')]


def test_an_agent_calls_tools_side_by_side_and_says_what_it_found(bench: Bench):
    with vendors(calling(*CALLS), saying("They rose ", "by 4%.")) as served:
        run = played(bench, served)

    running = "Running the tavily_search_0 tool..." * 2
    assert (run.status, run.said) == ("succeeded", f"{THINK_START}{running}{THINK_END}They rose by 4%.")
    first, second = served.asked
    assert [tool["function"]["name"] for tool in first["tools"]] == ["tavily_search_0"]
    assert first["stream"] is True
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [message.get("tool_call_id") for message in second["messages"][3:]] == ["call-1", "call-2"]
    assert all("Up 4% in May." in message["content"] for message in second["messages"][3:])
    assert served.searched == ["May", "widget prices"]


def test_what_tools_found_is_told_with_the_answer(bench: Bench):
    with vendors(calling(*CALLS), saying("They rose [ID:1].")) as served:
        run = played(bench, served)

    (end,) = [event.body for event in run.events if event.name == "message_end"]
    (chunk,) = end["reference"]["chunks"].values()
    assert (chunk["content"], chunk["url"]) == ("Up 4% in May.", "https://example.com/a")
    assert end["reference"]["doc_aggs"].keys() == {"Prices"}
    used = run.outputs("model")["use_tools"]
    assert [call["arguments"] for call in used] == [{"query": "widget prices"}, {"query": "May"}]


def test_every_tool_call_of_a_turn_can_be_looked_up(bench: Bench):
    with vendors(calling(*CALLS), saying("Fine.")) as served:
        run = played(bench, served)

    with bench.database.transaction() as tx:
        (told,) = attempt_records.list_tool_calls(tx, run.id, run.row["message_id"])

    assert told["component_id"] == "model"
    assert {call["tool_name"] for call in told["trace"]} == {"tavily_search_0"}


def test_another_attempt_neither_asks_nor_searches_again(bench: Bench):
    with vendors(calling(*CALLS), hanging, saying("They rose by 4%.")) as served:
        bench.accounts = [served.account]
        run = started(bench)
        leaving, other = (bench.a_worker(services=served.reach) for _ in range(2))
        with at_work(bench, leaving):
            assert served.hangs.wait(20)
            leaving.close()
        bench.play(other)

    assert run.status == "succeeded"
    assert run.said.endswith("They rose by 4%.")
    assert run.activation("model").attempt == 2
    assert len(served.asked) == 3
    assert served.searched == ["May", "widget prices"]
    assert served.asked[2]["messages"] == served.asked[1]["messages"]


# -- in other words --------------------------------------------------------------------------------------------------
def started(bench: Bench) -> Run:
    search = {"component_name": "TavilySearch", "name": "Search", "params": {"api_key": "a key that is long"}}
    agent = {
        "component": "Agent",
        "llm_id": MODEL,
        "sys_prompt": "You search.",
        "prompts": [{"role": "user", "content": "How are prices?"}],
        "tools": [search],
    }
    return bench.start("begin -> model -> say", model=agent, say=says("{model@content}"))


def played(bench: Bench, served: "Vendors") -> Run:
    bench.accounts = [served.account]
    run = started(bench)
    bench.play(bench.a_worker(services=served.reach))
    return run


@dataclass
class Vendors:
    """Both servers, and what they were asked. Streams are sent as the protocol wants them, calls in pieces."""

    port: int
    script: list[Any]
    asked: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    queries: list[str] = field(default_factory=list[str])
    hangs: threading.Event = field(default_factory=threading.Event)

    @property
    def searched(self) -> list[str]:
        return sorted(self.queries)

    @property
    def account(self) -> VendorAccount:
        address = f"http://127.0.0.1:{self.port}/v1"
        models = {"m": AccountModel(is_tools=True)}
        return VendorAccount("OpenAI-API-Compatible", base_url=address, api_key="key", models=models)

    @property
    def reach(self) -> ServiceConfig:
        return ServiceConfig(base_urls={"TAVILYSEARCH": f"http://127.0.0.1:{self.port}"})


def calling(*calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Deltas of an answer that calls, the arguments cut in two."""
    deltas: list[dict[str, Any]] = []
    for index, (call_id, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        begun = {"index": index, "id": call_id, "type": "function"}
        deltas.append({"tool_calls": [{**begun, "function": {"name": name, "arguments": arguments[:half]}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    return deltas


def saying(*pieces: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": piece} for piece in pieces]


hanging: list[dict[str, Any]] = [{}]


@contextmanager
def vendors(*script: list[dict[str, Any]]) -> Generator[Vendors]:
    """The servers for as long as the block takes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.endswith("/search"):
                served.queries.append(body["query"])
                self._whole(SEARCHED)
                return
            served.asked.append(body)
            self._stream(served.script.pop(0))

        def _whole(self, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _stream(self, deltas: list[dict[str, Any]]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.close_connection = True
            if deltas is hanging:
                served.hangs.set()
                self.rfile.read(1)  # until the client has gone
                return
            for delta in deltas:
                self._say({"index": 0, "delta": delta})
            self._say({"index": 0, "delta": {}, "finish_reason": "tool_calls" if "tool_calls" in deltas[0] else "stop"})
            self.wfile.write(b"data: [DONE]\n\n")

        def _say(self, choice: Mapping[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = Vendors(server.server_port, list(script))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
