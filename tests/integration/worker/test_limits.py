"""Limits of text, size, depth and activations: a run that exceeds one fails, and its error names the limit."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from canvas.outcome import Finished, WaitingForInput
from components.context import NodeContext
from providers.models.vendors.accounts import AccountModel, VendorAccount
from scheduler.lifecycle.lifecycle import Lifecycle
from tests.builders import content
from tests.integration.engine import Bench, at_work, until

MODEL = "m@OpenAI-API-Compatible"


def test_model_that_exceeds_the_stream_limit_is_stopped(bench: Bench):
    with endless_model() as (port, client_has_closed):
        account = VendorAccount(
            "OpenAI-API-Compatible", base_url=f"http://127.0.0.1:{port}/v1", api_key="key", models={"m": AccountModel()}
        )
        bench.accounts = [account]
        run = bench.start("begin -> model -> say", model={"llm_id": MODEL}, say=content("{model@content}"))
        with at_work(bench, bench.a_worker(max_stream_chars=5000)):
            until(lambda: run.status == "failed")
            assert client_has_closed.wait(30), "the connection to the provider is still open"

    assert "streamed more than 5000 characters" in run.row["error"]
    assert "EASEL_MAX_STREAM_CHARS" in run.row["error"]
    assert run.activation("model").attempt == 1
    assert len(run.text) <= 5000


def test_stream_of_exactly_the_limit_is_delivered(bench: Bench):
    run = bench.start("begin -> say", say=content("x" * 5000))

    bench.play(bench.a_worker(max_stream_chars=5000))

    assert (run.status, len(run.text)) == ("succeeded", 5000)


def test_output_limit_applies_to_forms(bench: Bench):
    async def ask(ctx: NodeContext) -> WaitingForInput:
        await asyncio.sleep(0)
        return WaitingForInput(inputs={"name": {"type": "line", "name": "x" * 5000}}, tips="")

    bench.does(work=ask)
    run = bench.start("begin -> work")
    bench.play(bench.a_worker(max_output=4000))

    assert run.status == "failed"
    assert "larger than 4000 characters" in run.row["error"]


def test_error_of_a_too_deeply_nested_output_names_the_limit_and_its_setting(bench: Bench):
    bench.does(work=lambda ctx: Finished({"result": [[[["deep"]]]]}))
    shallow, deep = (bench.start("begin -> work") for _ in range(2))

    bench.play(bench.a_worker(max_depth=5), until=lambda: shallow.status == "succeeded")
    bench.play(bench.a_worker(max_depth=4))

    assert (shallow.status, deep.status) == ("succeeded", "failed")
    assert "deeper than 4 levels" in deep.row["error"]
    assert "EASEL_MAX_DEPTH" in deep.row["error"]


def test_iteration_over_too_many_items_fails_before_the_first_item(bench: Bench):
    coordinator = bench.a_coordinator(max_activations=500)
    bench.lifecycle = Lifecycle(coordinator)
    run = bench.start(
        "begin -> each", "each: item -> work", each={"items_ref": "env.items"}, variables={"items": list(range(1000))}
    )
    bench.play(bench.a_worker(coordinator))

    assert (run.status, run.events[-1].body["code"]) == ("failed", "too_many_activations")
    assert "would be activation 2003 of this run, and 500 are allowed" in run.row["error"]
    assert {row.node_id for row in run.activations} == {"begin", "each"}
    assert {row.status for row in run.activations} <= {"done", "closed"}


def test_endless_loop_fails_its_run_and_closes_all_activations(bench: Bench):
    coordinator = bench.a_coordinator(max_activations=12)
    bench.lifecycle = Lifecycle(coordinator)
    run = bench.start(
        "begin -> loop", "loop: visit -> work", loop={"maximum_loop_count": 10**9, "logical_operator": "or"}
    )
    bench.play(bench.a_worker(coordinator))

    assert (run.status, run.events[-1].body["code"]) == ("failed", "too_many_activations")
    assert len(run.activations) == 12
    assert {row.status for row in run.activations} <= {"done", "closed"}


@contextmanager
def endless_model() -> Generator[tuple[int, threading.Event]]:
    """Run a model server whose answers never end; yield its port and an event that is set when a client has closed."""
    client_has_closed = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            delta = {"choices": [{"index": 0, "delta": {"content": "and so on, " * 5}}]}
            try:
                while True:
                    self.wfile.write(f"data: {json.dumps(delta)}\n\n".encode())
            except OSError:
                client_has_closed.set()
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port, client_has_closed
    finally:
        server.shutdown()
        server.server_close()
