"""Real runs as files, `easel-run/1`, for tests and pictures of the web pages.

Each canvas runs on a real engine, with models and a search engine that answer by a script.
"""

import json
import os
import re
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from pydantic import SecretStr

import local_engine
from api.app import ApiConfig
from providers.models.chat.retrying_model import RetryPolicy
from settings import Settings
from tests.integration.api.conftest import SECRET, Server, start_server
from tests.integration.api.talking import Client, canvas, eventually, message
from tests.integration.worker.scripted_vendor import KEY, ScriptedVendor, calls, said, vendor_of

ROOT = Path(__file__).resolve().parents[2]
ITEMS = 3_333  # with three steps for each: 10,000 steps
MODEL = "m@OpenAI-API-Compatible"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> \u202egpj.exe"
HOSTILE_MARKDOWN = (
    "# Title\n\n<b onclick='alert(1)'>HTML</b> [script](javascript:alert(1)) [data](data:text/html,x) "
    "[tabs](java\tscript:alert(1)) [fine](https://example.com/page) ![leak](http://127.0.0.1:9/leak.png)\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode <i>\n```\n"
)


def transform(script: str) -> dict[str, Any]:
    """Return params of a StringTransform that writes a text."""
    return {"method": "merge", "script": script, "delimiters": ["-"]}


def split(delimiter: str = ",") -> dict[str, Any]:
    """Return params of a StringTransform that splits the query."""
    return {"method": "split", "split_ref": "sys.query", "delimiters": [delimiter]}


SEARCH_AGENT: Mapping[str, Any] = {
    "llm_id": MODEL,
    "sys_prompt": "You answer from what you find.",
    "prompts": [{"role": "user", "content": "{sys.query}"}],
    "tools": [{"component_name": "TavilySearch", "params": {"api_key": "tvly-test"}}],
    "max_retries": 2,
    "delay_after_error": 0.1,
}


class CitedAnswer(list[dict[str, Any]]):
    """An answer of the model that cites the first source of its request."""

    def __init__(self, vendor: Any) -> None:
        super().__init__(said(""))
        self._vendor = vendor

    def __iter__(self) -> Iterator[dict[str, Any]]:
        number = re.findall(r"ID: (\d+)", json.dumps(self._vendor.requests[-1]["messages"]))[-1]
        yield from said("They rose by 4% ", f"[ID:{number}]", " [ID:999].")


def agent_canvas() -> dict[str, Any]:
    """Return a canvas whose Agent searches twice and answers."""
    return canvas(
        ("begin", "Begin", {}, ["Agent:Analyst"]),
        ("Agent:Analyst", "Agent", SEARCH_AGENT, ["Message:Answer"]),
        ("Message:Answer", "Message", message("{Agent:Analyst@content}"), []),
    )


def large_canvas() -> dict[str, Any]:
    """Return a canvas whose Iteration runs three steps for each item, without a drawing."""
    document = canvas(
        ("begin", "Begin", {}, ["StringTransform:Split"]),
        ("StringTransform:Split", "StringTransform", split(), ["Iteration:Rows"]),
        (
            "Iteration:Rows",
            "Iteration",
            {
                "items_ref": "StringTransform:Split@result",
                "outputs": {"all": {"ref": "StringTransform:Second@result", "type": "Array"}},
            },
            ["Message:End"],
        ),
        ("IterationItem:Rows", "IterationItem", {}, ["StringTransform:First"]),
        (
            "StringTransform:First",
            "StringTransform",
            transform("<{IterationItem:Rows@item}>"),
            ["StringTransform:Second"],
        ),
        ("StringTransform:Second", "StringTransform", transform("{StringTransform:First@result}!"), []),
        ("Message:End", "Message", message("Done."), []),
    )  # fmt: skip
    for child in ("IterationItem:Rows", "StringTransform:First", "StringTransform:Second"):
        document["components"][child]["parent_id"] = "Iteration:Rows"
    return document


FAILING = canvas(
    ("begin", "Begin", {}, ["LLM:Reply"]),
    (
        "LLM:Reply",
        "LLM",
        {
            "llm_id": MODEL,
            "prompts": [{"role": "user", "content": "{sys.query}"}],
            "max_retries": 2,
            "delay_after_error": 0.1,
        },
        ["VariableAssigner:Count"],
    ),
    (
        "VariableAssigner:Count",
        "VariableAssigner",
        {"variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}]},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("never"), []),
)
FORM = canvas(
    ("begin", "Begin", {}, ["UserFillUp:Who"]),
    (
        "UserFillUp:Who",
        "UserFillUp",
        {"enable_tips": True, "tips": "Who are you?", "inputs": {"name": {"type": "line", "name": "Name"}}},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Hello {UserFillUp:Who@name}"), []),
)


SLOW = canvas(
    ("begin", "Begin", {}, ["LLM:Writer"]),
    ("LLM:Writer", "LLM", {"llm_id": MODEL, "prompts": [{"role": "user", "content": "{sys.query}"}]}, ["Message:0"]),
    ("Message:0", "Message", message("{LLM:Writer@content}"), []),
)


def form_before(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canvas that waits for the form of FORM before its first node, so that a page is open when it begins."""
    whole = json.loads(json.dumps(document))
    asking = json.loads(json.dumps(FORM["components"]["UserFillUp:Who"]))
    begin = whole["components"]["begin"]
    asking["downstream"], begin["downstream"] = begin["downstream"], ["UserFillUp:Who"]
    whole["components"]["UserFillUp:Who"] = asking
    whole["graph"]["nodes"].append({"id": "UserFillUp:Who", "data": {"name": "who"}})
    return whole


class PacedAnswer(list[dict[str, Any]]):
    """The deltas of an answer, each sent when it is released; after a minute without one the answer ends."""

    def __init__(self, *deltas: str) -> None:
        super().__init__(said(*deltas))
        self._released = threading.Semaphore(0)

    def release(self, count: int = 1) -> None:
        """Let the model send so many more deltas."""
        self._released.release(count)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for delta in super().__iter__():
            if not self._released.acquire(timeout=60):
                return
            yield delta


@dataclass(frozen=True, slots=True)
class Producer:
    """What starts runs on a real engine and exports them into a folder."""

    client: Client
    vendor: ScriptedVendor
    folder: Path

    def example(self, name: str, query: str) -> Path:
        """Run an example of the project to its end."""
        document = json.loads((ROOT / "examples" / f"{name}.json").read_text(encoding="utf-8"))
        return self.run(name, document["dsl"], query, title=document["title"])

    def run(self, name: str, dsl: Mapping[str, Any], query: str, *answers: Any, title: str = "", **more: Any) -> Path:
        """Run a canvas until it is over or waits, with these answers of the model; return the exported file."""
        self.vendor.script[:] = answers
        run_id = self.client.start(self.client.agent(dsl, title or name), query, **more)["run_id"]
        ends = ("succeeded", "failed", "cancelled", "waiting")
        eventually(lambda: self.client.run(run_id), lambda run: run["status"] in ends, seconds=60)
        return self.export(name, run_id)

    def answer(self, name: str, dsl: Mapping[str, Any], query: str, inputs: Mapping[str, Any]) -> Path:
        """Run a canvas, answer its form, and export the run that is over."""
        run_id = self.client.start(self.client.agent(dsl, name), query)["run_id"]
        self.client.wait_for(run_id, "waiting")
        reply = self.client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": inputs})
        assert reply.status_code == 202, reply.text
        self.client.wait_for(run_id, "succeeded")
        return self.export(name, run_id)

    def export(self, name: str, run_id: str) -> Path:
        """Write the document of a run into the folder; return the path."""
        reply = self.client.http.get(f"/api/v1/runs/{run_id}/export")
        assert reply.status_code == 200, reply.text
        path = self.folder / f"{name}.json"
        path.write_bytes(reply.content)
        return path


@contextmanager
def producer(database_url: str, redis_url: str, folder: Path) -> Generator[tuple[Producer, Server]]:
    """Run an engine and an API on these servers until the block ends; yield what produces files, and the API."""
    with vendor_of() as vendor:
        accounts = folder / "accounts.toml"
        accounts.write_text(
            f'[[account]]\nfactory = "OpenAI-API-Compatible"\nbase_url = "http://127.0.0.1:{vendor.port}/v1"\n'
            f'api_key = "{KEY}"\n[account.models.m]\nis_tools = true\n'
        )
        os.environ["TOOL_TAVILYSEARCH_BASE_URL"] = f"http://127.0.0.1:{vendor.port}"
        try:
            settings = Settings(
                home=folder,
                database_url=database_url,
                redis_url=redis_url,
                api_pool=4,
                models_file=accounts,
                secret_key=SecretStr(SECRET),
            )
        finally:
            del os.environ["TOOL_TAVILYSEARCH_BASE_URL"]
        servers = settings.servers()[:2]
        with (
            local_engine.run_engine(settings, *servers, threads=8, retry_policy=RetryPolicy(base_delay=0.05)),
            start_server(ApiConfig(settings, poll_interval=0.5)) as server,
        ):
            client = server.client()
            yield Producer(client, vendor, folder), server
            client.http.close()


def support_run(producer: Producer) -> Path:
    """Export a run that succeeded, of a drawn canvas with branches and an Iteration."""
    return producer.example("support_triage", "My invoice is wrong: charged twice; no refund yet. Please help.")


def waiting_run(producer: Producer) -> Path:
    """Export a run that waits for a person."""
    return producer.run("waiting", FORM, "hello")


def answered_run(producer: Producer) -> Path:
    """Export a run whose form was answered: its step has two attempts."""
    return producer.answer("answered", FORM, "hello", {"name": "Ada"})


def failed_run(producer: Producer) -> Path:
    """Export a run that failed after a model call that was tried three times."""
    return producer.run("failed", FAILING, "Hello?", "busy", "busy", said("Hello!"))


def agent_run(producer: Producer) -> Path:
    """Export a run whose Agent called a tool twice and then answered in Markdown."""
    return producer.run(
        "agent", agent_canvas(), "What do widgets cost?",
        calls("widget prices"), calls("May"), said("They rose ", "by **4%** in May."),
    )  # fmt: skip


def hostile_run(producer: Producer) -> Path:
    """Export a run with hostile texts as title, names, query, outputs and answer."""
    document = agent_canvas()
    for node in document["graph"]["nodes"]:
        node["data"]["name"] = f"{HOSTILE} {node['id']}"
    script = calls(HOSTILE), said(HOSTILE_MARKDOWN)
    return producer.run("hostile", document, HOSTILE, *script, title=HOSTILE)


def iteration_run(producer: Producer, items: int) -> Path:
    """Export a run of an Iteration with three steps for each item, of a canvas without a drawing."""
    return producer.run(f"iteration-{items}", large_canvas(), ",".join(map(str, range(items))))


def repeat_items(path: Path, items: int) -> Path:
    """Write a run with so many items, from one with few: the last item again and again, with ids of its own.

    A real run of 3,333 items gives such a file, in a minute.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    container = next(row for row in document["activations"] if row["node_id"] == "Iteration:Rows")
    scope = "Iteration:Rows#0."
    few = container["count"]
    pattern = [row for row in document["activations"] if row["scope"] == f"{scope}{few - 1}"]
    for row in document["activations"]:
        if row["scope"] == f"{scope}{few}":  # the activation that collects the results
            row |= {"scope": f"{scope}{items}", "order_key": f"{pattern[-1]['order_key']}-{items:06}"}
    values = [row for row in document["values"] if row["activation_id"] in {row["id"] for row in pattern}]
    events = [row for row in document["events"] if row["activation_id"] in {row["id"] for row in pattern}]
    for item in range(few, items):
        ids = {row["id"]: uuid5(NAMESPACE_OID, f"{row['id']} {item}").hex for row in pattern}
        document["activations"] += [
            {**row, "id": ids[row["id"]], "scope": f"{scope}{item}", "order_key": f"{row['order_key']}-{item:06}"}
            for row in pattern
        ]
        document["values"] += [{**row, "activation_id": ids[row["activation_id"]]} for row in values]
        last = document["events"][-1]["number"]
        document["events"] += [
            {**row, "number": last + number, "activation_id": ids[row["activation_id"]], "item": item}
            for number, row in enumerate(events, 1)
        ]
    container["count"] = items
    larger = path.with_name(f"repeated-{items}.json")
    larger.write_text(json.dumps(document), encoding="utf-8")
    return larger
