"""An Agent with the real SDK, against servers with the protocols of chat completions and of a search engine."""

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
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work
from worker.services.factory import ServiceConfig

MODEL = "m@OpenAI-API-Compatible"
SEARCHED = {"results": [{"title": "Prices", "url": "https://example.com/a", "content": "Up 4% in May."}]}
CALLS = [("call-1", "tavily_search_0", '{"query": "widget prices"}'), ("call-2", "tavily_search_0", '{"query": "May"}')]


def test_agent_calls_tools_in_parallel_and_answers_from_their_results(bench: Bench):
    with vendors(tool_call_deltas(*CALLS), answer_deltas("They rose ", "by 4%.")) as served:
        run = run_agent(bench, served)

    running = "Running the tavily_search_0 tool..." * 2
    assert (run.status, run.text) == ("succeeded", f"{THINK_START}{running}{THINK_END}They rose by 4%.")
    first, second = served.model_requests
    assert [tool["function"]["name"] for tool in first["tools"]] == ["tavily_search_0"]
    assert first["stream"] is True
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [message.get("tool_call_id") for message in second["messages"][3:]] == ["call-1", "call-2"]
    assert all("Up 4% in May." in message["content"] for message in second["messages"][3:])
    assert served.sorted_queries == ["May", "widget prices"]


def test_message_end_cites_the_results_of_tool_calls(bench: Bench):
    with vendors(tool_call_deltas(*CALLS), answer_deltas("They rose [ID:1].")) as served:
        run = run_agent(bench, served)

    (end,) = [event.body for event in run.events if event.name == "message_end"]
    (chunk,) = end["reference"]["chunks"].values()
    assert (chunk["content"], chunk["url"]) == ("Up 4% in May.", "https://example.com/a")
    assert end["reference"]["doc_aggs"].keys() == {"Prices"}
    used = run.outputs("model")["use_tools"]
    assert [call["arguments"] for call in used] == [{"query": "widget prices"}, {"query": "May"}]


def test_tool_calls_of_a_turn_are_listed_by_message_id(bench: Bench):
    with vendors(tool_call_deltas(*CALLS), answer_deltas("Fine.")) as served:
        run = run_agent(bench, served)

    with bench.database.transaction() as tx:
        (record,) = attempt_records.list_tool_calls(tx, run.id, run.row["message_id"])

    assert record["component_id"] == "model"
    assert {call["tool_name"] for call in record["trace"]} == {"tavily_search_0"}


def test_second_attempt_of_an_agent_repeats_no_recorded_call(bench: Bench):
    with vendors(tool_call_deltas(*CALLS), hanging_answer, answer_deltas("They rose by 4%.")) as served:
        bench.accounts = [served.account]
        run = start_agent(bench)
        leaving, other = (bench.a_worker(services=served.services) for _ in range(2))
        with at_work(bench, leaving):
            assert served.is_hanging.wait(20)
            leaving.close()
        bench.play(other)

    assert run.status == "succeeded"
    assert run.text.endswith("They rose by 4%.")
    assert run.activation("model").attempt == 2
    assert len(served.model_requests) == 3
    assert served.sorted_queries == ["May", "widget prices"]
    assert served.model_requests[2]["messages"] == served.model_requests[1]["messages"]


# -- helpers ---------------------------------------------------------------------------------------------------------
def start_agent(bench: Bench) -> Run:
    search = {"component_name": "TavilySearch", "name": "Search", "params": {"api_key": "a key that is long"}}
    agent = {
        "component": "Agent",
        "llm_id": MODEL,
        "sys_prompt": "You search.",
        "prompts": [{"role": "user", "content": "How are prices?"}],
        "tools": [search],
    }
    return bench.start("begin -> model -> say", model=agent, say=content("{model@content}"))


def run_agent(bench: Bench, served: "Vendors") -> Run:
    bench.accounts = [served.account]
    run = start_agent(bench)
    bench.play(bench.a_worker(services=served.services))
    return run


@dataclass
class Vendors:
    """Both servers and their requests. Tool calls are streamed in several deltas, as the protocol allows."""

    port: int
    script: list[Any]
    model_requests: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    queries: list[str] = field(default_factory=list[str])
    is_hanging: threading.Event = field(default_factory=threading.Event)

    @property
    def sorted_queries(self) -> list[str]:
        return sorted(self.queries)

    @property
    def account(self) -> VendorAccount:
        address = f"http://127.0.0.1:{self.port}/v1"
        models = {"m": AccountModel(is_tools=True)}
        return VendorAccount("OpenAI-API-Compatible", base_url=address, api_key="key", models=models)

    @property
    def services(self) -> ServiceConfig:
        return ServiceConfig(base_urls={"TAVILYSEARCH": f"http://127.0.0.1:{self.port}"})


def tool_call_deltas(*calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Return the deltas of an answer with tool calls, whose arguments are split in two."""
    deltas: list[dict[str, Any]] = []
    for index, (call_id, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        head = {"index": index, "id": call_id, "type": "function"}
        deltas.append({"tool_calls": [{**head, "function": {"name": name, "arguments": arguments[:half]}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    return deltas


def answer_deltas(*deltas: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": delta} for delta in deltas]


hanging_answer: list[dict[str, Any]] = [{}]


@contextmanager
def vendors(*script: list[dict[str, Any]]) -> Generator[Vendors]:
    """Run the servers until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.endswith("/search"):
                served.queries.append(body["query"])
                self._send_json(SEARCHED)
                return
            served.model_requests.append(body)
            self._send_stream(served.script.pop(0))

        def _send_json(self, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _send_stream(self, deltas: list[dict[str, Any]]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.close_connection = True
            if deltas is hanging_answer:
                served.is_hanging.set()
                self.rfile.read(1)  # until the client has gone
                return
            for delta in deltas:
                self._send_choice({"index": 0, "delta": delta})
            self._send_choice(
                {"index": 0, "delta": {}, "finish_reason": "tool_calls" if "tool_calls" in deltas[0] else "stop"}
            )
            self.wfile.write(b"data: [DONE]\n\n")

        def _send_choice(self, choice: Mapping[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = Vendors(server.server_port, list(script))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
