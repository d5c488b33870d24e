"""The speed of the pages of a run and of the editor in Chromium, as Markdown: `python -m bench.scripts.viewer`
with `--only P3,P4` or `--half-hour`.

The script starts `easel up` with a home of its own and opens its pages in a Chromium without a window, signed in, with
warm caches. Frames are counted by the browser's callback before each paint, long tasks by its observer, heap and
elements by the developer tools' protocol after a garbage collection, processor time by /proc. Each figure stands
beside its goal; the load of the machine is printed above the table, because everything runs on the same cores.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from bench.fixtures.deployment import Deployment, run_deployment
from bench.fixtures.growth_engine import component_node, merge_node
from bench.measuring.cpu import cpu_ms_of
from bench.scripts.reading import ReadRequest, add_runs, measure

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--enable-precise-memory-info",
    "--js-flags=--expose-gc",
)
DELTA_INTERVAL = 0.005  # seconds: 200 text deltas a second
RECORD = """
window.__tasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.__tasks.push(entry.duration);
}).observe({entryTypes: ["longtask"]});
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.__largestPaint = entry.startTime;
}).observe({type: "largest-contentful-paint", buffered: true});
window.__firsts = {};
const look = () => {
  for (const [name, selector] of Object.entries(window.__wanted ?? {})) {
    if (!(name in window.__firsts) && document.querySelector(selector)) window.__firsts[name] = performance.now();
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
FRAMES_ON = """() => {
  window.__frames = [];
  window.__counting = true;
  let before = performance.now();
  const next = (now) => {
    window.__frames.push(now - before);
    before = now;
    if (window.__counting) requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}"""
FRAMES_OFF = "() => { window.__counting = false; return window.__frames.slice(1); }"
SCROLL = """(ms) => new Promise((resolve) => {
  const grid = document.querySelector("[role=treegrid]");
  const began = performance.now();
  const next = () => {
    const part = Math.min(1, (performance.now() - began) / ms);
    grid.scrollTop = part * (grid.scrollHeight - grid.clientHeight);
    if (part < 1) requestAnimationFrame(next); else resolve();
  };
  requestAnimationFrame(next);
})"""
ALL_ROWS = """() => {
  const header = document.querySelector("[data-testid=run-header]");
  return header !== null && /10,00\\d steps/.test(header.innerText);
}"""
LOADED = """() => {
  const loaded = performance.getEntriesByType("resource");
  const code = loaded.filter(({name}) => /[.](js|css)$/.test(new URL(name).pathname));
  return {
    bytes: code.reduce((sum, {encodedBodySize}) => sum + encodedBodySize, 0),
    requests: loaded.length + 1,
    others: loaded.filter(({name}) => new URL(name).origin !== location.origin).length,
    paint: window.__largestPaint,
  };
}"""
WATCH_NODES = """() => {
  window.__seen = {};
  const look = () => {
    for (const {dataset} of document.querySelectorAll("[data-testid=node]")) {
      if (dataset.state === "done" && !(dataset.nodeId in window.__seen)) window.__seen[dataset.nodeId] = Date.now();
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


TIDY = """() => new Promise((resolve) => {
  const button = [...document.querySelectorAll("button")].find((each) => each.textContent === "Tidy");
  const places = () => [...document.querySelectorAll(".react-flow__node")].map((each) => each.style.transform).join();
  const [before, began] = [places(), performance.now()];
  const look = () => (places() === before ? requestAnimationFrame(look) : resolve(performance.now() - began));
  button.click();
  requestAnimationFrame(look);
})"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value beside its goal."""

    name: str
    measure: str
    value: str
    goal: str


@dataclass(frozen=True, slots=True)
class Bench:
    """A deployment and a browser that is signed in to it."""

    stage: Deployment
    context: Any

    def run(self, components: Mapping[str, Any], query: str, graph: Mapping[str, Any] | None = None) -> str:
        """Start a run of a canvas; return its id."""
        dsl = {"components": components, **({"graph": graph} if graph else {})}
        made = self.stage.client.post("/agents", json={"title": f"viewer {time.monotonic()}", "dsl": dsl}).json()
        reply = self.stage.client.post(f"/agents/{made['data']['id']}/runs", json={"query": query})
        reply.raise_for_status()
        run_id: str = reply.json()["run_id"]
        return run_id

    def agent(self, components: Mapping[str, Any], graph: Mapping[str, Any]) -> str:
        """Make an agent of a drawn canvas; return its id."""
        dsl = {"components": components, "graph": graph}
        made = self.stage.client.post("/agents", json={"title": f"viewer {time.monotonic()}", "dsl": dsl}).json()
        agent_id: str = made["data"]["id"]
        return agent_id

    def await_status(self, run_id: str, *statuses: str, seconds: float = 900) -> dict[str, Any]:
        """Wait until a run has one of these statuses; return its head."""
        deadline = time.monotonic() + seconds
        while True:
            head: dict[str, Any] = self.stage.client.get(f"/runs/{run_id}", params={"activations": "none"}).json()
            if head["status"] in statuses:
                return head
            if head["status"] in ("failed", "cancelled") or time.monotonic() > deadline:
                raise RuntimeError(f"The run is {head['status']}: {head['error']}")
            time.sleep(0.2)

    @contextmanager
    def fresh_context(self) -> Generator["Bench"]:
        """A context without anything in its caches, signed in."""
        context = signed_in_context(self.context.browser, self.stage)
        try:
            yield Bench(self.stage, context)
        finally:
            context.close()

    @contextmanager
    def page(self, address: str, wanted: Mapping[str, str] | None = None) -> Generator[Any]:
        """Open an address in a tab, noting when each wanted selector matches first, in milliseconds."""
        tab = self.context.new_page()
        try:
            tab.add_init_script(f"window.__wanted = {dict(wanted or {})!r};" + RECORD)
            tab.goto(f"{self.stage.url}{address}")
            yield tab
        finally:
            tab.close()


def signed_in_context(browser: Any, stage: Deployment) -> Any:
    """Return a new context of a browser that is signed in to a deployment."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(60_000)
    reply = context.request.post(
        f"{stage.url}/api/v1/viewer/session", data={"token": stage.token}, headers={"X-Easel-Viewer": "1"}
    )
    if not reply.ok:
        raise RuntimeError(f"Signing in was answered with {reply.status}.")
    return context


def firsts(tab: Any, *names: str) -> list[float]:
    """Wait until selectors have matched; return when, in milliseconds since the navigation."""
    tab.wait_for_function("names => names.every((name) => name in window.__firsts)", arg=list(names), timeout=60_000)
    found: dict[str, float] = tab.evaluate("window.__firsts")
    return [found[name] for name in names]


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[18] if len(values) > 1 else values[0]


def heap_and_elements(tab: Any) -> tuple[float, int]:
    """Return the heap in megabytes after a garbage collection, and the number of elements."""
    tab.evaluate("window.gc()")
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return metrics["JSHeapUsedSize"] / 1e6, tab.evaluate("document.querySelectorAll('*').length")


def frames_during(tab: Any, act: Callable[[], object]) -> list[float]:
    """Do something; return the milliseconds of each frame meanwhile."""
    tab.evaluate(FRAMES_ON)
    act()
    found: list[float] = tab.evaluate(FRAMES_OFF)
    return found


# -- canvases ----------------------------------------------------------------------------------------------------------
def iteration(per_item: int = 2) -> dict[str, Any]:
    """Return an Iteration over the comma-separated items of the query, with one step more than `per_item` for each."""
    over = {
        "items_ref": "StringTransform:split@result",
        "outputs": {"all": {"ref": f"StringTransform:{per_item}@result", "type": "Array<string>"}},
    }
    split = {"method": "split", "split_ref": "sys.query", "delimiters": [","]}
    names = [f"StringTransform:{number}" for number in range(1, per_item + 1)]
    body = {
        name: merge_node("{IterationItem:one@item}", *names[place + 1 : place + 2], parent="Iteration:all")
        for place, name in enumerate(names)
    }
    return {
        "begin": component_node("Begin", {}, "StringTransform:split"),
        "StringTransform:split": component_node("StringTransform", split, "Iteration:all"),
        "Iteration:all": component_node("Iteration", over, "Message:end"),
        "IterationItem:one": component_node("IterationItem", {}, names[0], parent="Iteration:all"),
        **body,
        "Message:end": component_node("Message", {"content": ["done"]}),
    }


def items(count: int) -> str:
    return ",".join(map(str, range(count)))


def chain(length: int, first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return nodes in a row, after a first one if it is given."""
    names = [f"StringTransform:{number}" for number in range(length)]
    nodes = {name: merge_node("{sys.query}", *names[place + 1 : place + 2]) for place, name in enumerate(names)}
    begin = component_node("Begin", {}, "First:0" if first else names[0])
    return {"begin": begin, **({"First:0": {**first, "downstream": names[:1]}} if first else {}), **nodes}


def drawing(components: Mapping[str, Any], width: int = 40) -> dict[str, Any]:
    """Return a drawing of a canvas on a grid."""
    nodes = [
        {
            "id": name,
            "type": "beginNode" if name == "begin" else "ragNode",
            "position": {"x": 260 * (place % width), "y": 120 * (place // width)},
            "data": {"name": name, "label": component["obj"]["component_name"], "form": component["obj"]["params"]},
        }
        for place, (name, component) in enumerate(components.items())
    ]
    edges = [
        {"id": f"{name}-{target}", "source": name, "target": target, "sourceHandle": "start", "targetHandle": "end"}
        for name, component in components.items()
        for target in component["downstream"]
    ]
    return {"nodes": nodes, "edges": edges}


# -- measurements ------------------------------------------------------------------------------------------------------
def first_load(bench: Bench) -> list[Figure]:
    """P1 (T090): what the first visit to the list and to a run loads, and when the largest part is painted."""
    run_id = bench.run(iteration(), items(32))
    bench.await_status(run_id, "succeeded")
    figures: list[Figure] = []
    for name, address in (("list of runs", "/runs"), ("run", f"/runs/{run_id}")):
        cold: list[Mapping[str, float]] = []
        warm: list[Mapping[str, float]] = []
        for _ in range(5):
            with bench.fresh_context() as fresh:
                for visits in (cold, warm):
                    with fresh.page(address) as tab:
                        tab.locator("[data-testid=page][data-ready='1']").wait_for()
                        tab.wait_for_timeout(300)  # a larger part may come after the page is ready
                        visits.append(tab.evaluate(LOADED))
        first = cold[0]
        figures += [
            Figure("P1", f"{name}: scripts and styles, compressed", f"{first['bytes'] / 1000:.0f} kB", "450 kB"),
            Figure(
                "P1", f"{name}: requests, of these to other hosts", f"{first['requests']}, {first['others']}", "40, 0"
            ),
            Figure("P1", f"{name}: largest paint, cold, median of 5", median_ms(cold, "paint"), "1,000 ms"),
            Figure("P1", f"{name}: largest paint, warm, median of 5", median_ms(warm, "paint"), "400 ms"),
        ]
    return figures


def median_ms(visits: Sequence[Mapping[str, float]], name: str) -> str:
    return f"{statistics.median(each[name] for each in visits):,.0f} ms"


def open_100(bench: Bench) -> list[Figure]:
    """P2 (T091): a run of 100 steps, from the navigation to the coloured drawing."""
    run_id = bench.run(iteration(), items(32))
    bench.await_status(run_id, "succeeded")
    times: list[float] = []
    for _ in range(21):
        with bench.page(f"/runs/{run_id}", {"drawn": '[data-testid=node][data-state="done"]'}) as tab:
            times += firsts(tab, "drawn")
    return [Figure("P2", "100 steps: coloured drawing, p95 of 20", f"{p95(times[1:]):.0f} ms", "700 ms")]


def open_10_000(bench: Bench) -> list[Figure]:
    """P3 (T092): a run of 10,000 steps: opening, loading, scrolling, elements, heap."""
    run_id = bench.run(iteration(), items(3_333))
    bench.await_status(run_id, "succeeded")
    wanted = {"drawn": '[data-testid=node][data-state="done"]', "header": "[data-testid=run-header]"}
    opened: list[float] = []
    loaded: list[float] = []
    for _ in range(3):
        with bench.page(f"/runs/{run_id}", wanted) as tab:
            opened.append(max(firsts(tab, "drawn", "header")))
            tab.wait_for_function(ALL_ROWS)
            loaded.append(tab.evaluate("performance.now()"))
    with bench.page(f"/runs/{run_id}?view=time") as tab:
        grid = tab.get_by_role("treegrid")
        tab.wait_for_function(ALL_ROWS)
        grid.focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            grid.press(key)
        tab.wait_for_function("() => Number(document.querySelector('[role=treegrid]').ariaRowCount) > 3000")
        tab.wait_for_timeout(1_000)
        frames = frames_during(tab, lambda: tab.evaluate(SCROLL, 10_000))
        heap, elements = heap_and_elements(tab)
    return [
        Figure(
            "P3", "10,000 steps: header and drawing, median of 3", f"{statistics.median(opened):.0f} ms", "1,500 ms"
        ),
        Figure("P3", "all rows loaded, median of 3", f"{statistics.median(loaded):.0f} ms", "6,000 ms"),
        Figure("P3", "scrolling Time in 10 s: frame p95", f"{p95(frames):.1f} ms", "20 ms"),
        Figure("P3", "the longest frame", f"{max(frames):.0f} ms", "50 ms"),
        Figure("P3", "elements", f"{elements:,}", "3,000"),
        Figure("P3", "heap", f"{heap:.0f} MB", "150 MB"),
    ]


def draw_1_000(bench: Bench) -> list[Figure]:
    """P4 (T093): a drawing of 1,000 nodes: opening, panning and zooming, at rest and while its run goes on."""
    components = chain(999)
    graph = drawing(components)
    wanted = {"drawn": '[data-testid=distant-nodes][data-counts*="done"]'}

    def pan(tab: Any) -> None:
        tab.mouse.move(700, 500)
        tab.mouse.down()
        for step in range(90):
            tab.mouse.move(700 + 3 * (step if step < 45 else 90 - step), 500 + step)
        tab.mouse.up()

    def zoom(tab: Any) -> None:
        for step in range(60):
            tab.mouse.wheel(0, -60 if step < 30 else 60)
            tab.wait_for_timeout(16)

    run_id = bench.run(components, "x", graph)
    with bench.page(f"/runs/{run_id}", wanted) as tab:
        firsts(tab, "drawn")
        live = frames_during(tab, lambda: pan(tab))
        was_running = tab.get_by_test_id("run-header").get_attribute("data-status") == "running"
    bench.await_status(run_id, "succeeded")
    opened: list[float] = []
    for _ in range(3):
        with bench.page(f"/runs/{run_id}", wanted) as tab:
            opened += firsts(tab, "drawn")
    with bench.page(f"/runs/{run_id}", wanted) as tab:
        firsts(tab, "drawn")
        tab.wait_for_timeout(1_000)
        panned = frames_during(tab, lambda: pan(tab))
        zoomed = frames_during(tab, lambda: zoom(tab))
    note = "" if was_running else " (the run had ended before)"
    return [
        Figure("P4", "1,000 nodes: opening, median of 3", f"{statistics.median(opened):.0f} ms", "1,500 ms"),
        Figure("P4", "panning: frame p95", f"{p95(panned):.1f} ms", "20 ms"),
        Figure("P4", "zooming: frame p95", f"{p95(zoomed):.1f} ms", "20 ms"),
        Figure("P4", f"panning while the run goes on: frame p95{note}", f"{p95(live):.1f} ms", "20 ms"),
    ]


def live_latency(bench: Bench) -> list[Figure]:
    """P5 (T094): how long after the end of a step its node is drawn as done, with Redis and without.

    Page and database have the same clock.
    """
    with bench.stage.api_without_redis() as stage:
        context = signed_in_context(bench.context.browser, stage)
        without = _delays_of_nodes(Bench(stage, context))
        context.close()
    return [
        Figure(
            "P5", "from the end of a step to its node, p95 of 100", f"{p95(_delays_of_nodes(bench)):.0f} ms", "500 ms"
        ),
        Figure("P5", "the same by an API without Redis", f"{p95(without):.0f} ms", "2,600 ms"),
    ]


def _delays_of_nodes(bench: Bench) -> list[float]:
    """Return the milliseconds from the end of each of 100 steps to its node."""
    form = component_node("UserFillUp", {"inputs": {"name": {"type": "line", "name": "Name"}}})
    delays: list[float] = []
    for _ in range(5):
        run_id = bench.run(chain(20, form), "x")
        bench.await_status(run_id, "waiting")
        with bench.page(f"/runs/{run_id}", {"ready": '[data-live="stream"][data-ready="1"]'}) as tab:
            firsts(tab, "ready")
            tab.get_by_test_id("node").first.wait_for()
            tab.evaluate(WATCH_NODES)
            bench.stage.client.post(f"/runs/{run_id}/resume", json={"inputs": {"name": "x"}}).raise_for_status()
            bench.await_status(run_id, "succeeded")
            tab.wait_for_function("() => Object.keys(window.__seen).length >= 22", timeout=20_000)
            seen: dict[str, float] = tab.evaluate("window.__seen")
        page = bench.stage.client.get(f"/runs/{run_id}/activations", params={"scope": "*"}).json()
        names, ended = page["columns"].index("node_id"), page["columns"].index("finished_at")
        ends = {page["strings"][row[names]]: row[ended] for row in page["rows"]}
        delays += [seen[node] - end for node, end in ends.items() if node.startswith("StringTransform")]
    return delays


def text_deltas(bench: Bench, seconds: float = 60) -> list[Figure]:
    """P6 (T095): a text that grows by 200 text deltas a second for a minute, and P10's heap with it."""
    run_id, _, name = bench.stage.start_streaming_run()
    with bench.page(f"/runs/{run_id}?view=talk") as tab:
        tab.get_by_test_id("stream").wait_for()
        tab.wait_for_timeout(2_000)
        tab.evaluate("window.__tasks.length = 0")
        before = len(bench.stage.stream_record(name)["tokens"])
        tab.wait_for_timeout(1_000 * seconds)
        tasks: list[float] = tab.evaluate("window.__tasks")
        rate = (len(bench.stage.stream_record(name)["tokens"]) - before) / seconds
        bench.stage.client.post(f"/runs/{run_id}/cancel").raise_for_status()
        bench.await_status(run_id, "cancelled")
        tab.locator('[data-testid=page][data-live="off"]').wait_for()
        shown: str = tab.get_by_test_id("stream").locator("[data-text]").inner_text()
        streams = bench.stage.client.get(f"/runs/{run_id}/export").json()["message_streams"]
    is_equal = shown.split() == streams[0]["text"].split()
    return [
        Figure("P6", f"{rate:.0f} text deltas a second for {seconds:.0f} s: the longest task", longest(tasks), "50 ms"),
        Figure("P6", "tasks above 50 ms", str(len(tasks)), "0"),
        Figure("P6", "text complete and equal to the row", "yes" if is_equal else "no", "yes"),
    ]


def longest(tasks: Sequence[float]) -> str:
    return f"{max(tasks):.0f} ms" if tasks else "below 50 ms"


def list_100_000(bench: Bench) -> list[Figure]:
    """P7 (T096): the list of 100,000 runs: its first page, and a page far back."""
    run_id = bench.run(chain(2), "x")
    bench.await_status(run_id, "succeeded")
    add_runs(bench.stage, run_id, 100_000)
    before = ""
    for _ in range(990):  # 100 at once: the 1,981st page of 50, which is full
        page = bench.stage.client.get("/runs", params={"limit": 100, **({"before": before} if before else {})}).json()
        before = page["next"]
    painted: list[float] = []
    for _ in range(21):
        with bench.page("/runs", {"row": "[data-testid=run-row]"}) as tab:
            painted += firsts(tab, "row")
    spent = {
        name: p95(measure(bench.stage, ReadRequest(name, "/runs", {"limit": 50, **query}), 40)[0])
        for name, query in (("first", {}), ("far", {"before": before}), ("none", {"status": "stopping"}))
    }
    return [
        Figure("P7", "100,000 runs: first page, the reply: p95 of 40", f"{spent['first']:.0f} ms", "150 ms"),
        Figure("P7", "first page to paint: p95 of 20", f"{p95(painted[1:]):.0f} ms", "600 ms"),
        Figure("P7", "the 1,981st page beside the first", f"{spent['far'] / spent['first']:.1f} ×", "1.5 ×"),
        Figure("P7", "a status that no run has: p95 of 40", f"{spent['none']:.0f} ms", "1,000 ms"),
    ]


def compare_10_000(bench: Bench) -> list[Figure]:
    """P11 (T099): the comparison of two runs of 10,000 steps, until its first rows."""
    pair = [bench.run(iteration(), items(3_333)) for _ in range(2)]
    for run_id in pair:
        bench.await_status(run_id, "succeeded")
    times: list[float] = []
    for _ in range(3):
        with bench.page(f"/compare/{pair[0]}/{pair[1]}", {"row": "[data-testid=compare-row]"}) as tab:
            times += firsts(tab, "row")
    return [
        Figure(
            "P11",
            "two runs of 10,000 steps: first rows, median of 3",
            f"{statistics.median(times):,.0f} ms",
            "3,000 ms",
        )
    ]


def watchers(bench: Bench) -> list[Figure]:
    """P8 (T097): what one and a hundred watchers of a running run of 10,000 steps cost the database and the API.

    Of PostgreSQL only the processes that serve the API count: those that serve the run's workers differ by more from
    run to run than a watcher costs.
    """
    spent = {count: processor_share(bench, count) for count in (0, 1, 100)}

    def extra_share(count: int, process: str) -> float:
        return spent[count][process] - spent[0][process]

    rows = [
        Figure("P8", f"one watcher: {process}, of a core", f"{100 * extra_share(1, process):.1f} %", "6 %")
        for process in ("PostgreSQL", "API")
    ]
    one, many = (sum(max(0.0, extra_share(count, process)) for process in ("PostgreSQL", "API")) for count in (1, 100))
    times = f"{many / one:.1f} ×" if one > 0 else "not measurable"
    return [*rows, Figure("P8", "100 watchers beside one", times, "3 ×")]


def processor_share(bench: Bench, count: int) -> dict[str, float]:
    """Return which part of a core PostgreSQL and the API use while a run goes on that so many clients watch."""
    api = bench.stage.child_pid("cli\0api")
    ending = threading.Event()

    def watch() -> None:
        headers = {"Authorization": f"Bearer {bench.stage.token}", "Accept": "text/event-stream"}
        with (
            httpx2.Client(base_url=f"{bench.stage.url}/api/v1", headers=headers, timeout=60) as client,
            client.stream("GET", f"/runs/{run_id}/live") as stream,
        ):
            for _ in stream.iter_bytes():
                if ending.is_set():
                    return

    run_id = bench.run(iteration(), items(3_333))
    threads = [threading.Thread(target=watch, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    pids = {"PostgreSQL": bench.stage.backend_pids("easel-api", "easel-streams"), "API": [api]}
    began = time.monotonic()
    before = {name: cpu_ms_of(group) for name, group in pids.items()}
    time.sleep(15)
    elapsed = 1000 * (time.monotonic() - began)
    found = {name: (cpu_ms_of(group) - before[name]) / elapsed for name, group in pids.items()}
    bench.await_status(run_id, "succeeded")
    ending.set()
    for thread in threads:
        thread.join(5)
    return found


def heap_growth(bench: Bench, minutes: float) -> list[Figure]:
    """P10 (T099): how much the heap of a page grows that shows a text being written."""
    run_id, _, _ = bench.stage.start_streaming_run()
    with bench.page(f"/runs/{run_id}?view=talk") as tab:
        tab.get_by_test_id("stream").wait_for()
        tab.wait_for_timeout(5_000)
        before, _ = heap_and_elements(tab)
        tab.wait_for_timeout(60_000 * minutes)
        after, _ = heap_and_elements(tab)
    bench.stage.client.post(f"/runs/{run_id}/cancel").raise_for_status()
    return [
        Figure(
            "P10", f"heap after {minutes:g} min of text: growth", f"{after - before:.1f} MB", "20 MB in half an hour"
        )
    ]


def edit_200(bench: Bench) -> list[Figure]:
    """P12 (T099): the editor with 200 nodes: opening, typing, dragging; laying out 200 nodes and 1,000."""
    small, large = chain(199), chain(999)
    agent = bench.agent(small, drawing(small, 20))
    wanted = {"drawn": '[data-page=edit][data-ready="1"] [data-testid=node]'}
    opened: list[float] = []
    for _ in range(4):
        with bench.page(f"/agents/{agent}/edit", wanted) as tab:
            opened += firsts(tab, "drawn")

    def drag(tab: Any) -> None:
        box = tab.locator('[data-testid=node][data-node-id="StringTransform:109"]').bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        tab.mouse.move(x, y)
        tab.mouse.down()
        for step in range(120):
            tab.mouse.move(x + (step if step < 60 else 120 - step), y + step / 2)
        tab.mouse.up()

    with bench.page(f"/agents/{agent}/edit?node=StringTransform%3A109", wanted) as tab:
        firsts(tab, "drawn")
        text = tab.get_by_test_id("panel").locator("[contenteditable=true]").first
        text.click()
        tab.wait_for_timeout(1_000)
        typed = frames_during(
            tab, lambda: tab.keyboard.type("The quick brown fox jumps over the lazy dog. " * 4, delay=25)
        )
        dragged = frames_during(tab, lambda: drag(tab))
    return [
        Figure("P12", "editor, 200 nodes: opening, median of 3", f"{statistics.median(opened[1:]):.0f} ms", "1,500 ms"),
        Figure("P12", "typing while it is saved: frame p95", f"{p95(typed):.1f} ms", "20 ms"),
        Figure("P12", "dragging: frame p95", f"{p95(dragged):.1f} ms", "20 ms"),
        Figure("P12", "laying out 200 nodes, median of 3", f"{laying_out(bench, small, 20):.0f} ms", "300 ms"),
        Figure("P12", "laying out 1,000 nodes, median of 3", f"{laying_out(bench, large, 40):.0f} ms", "1,500 ms"),
    ]


def laying_out(bench: Bench, components: Mapping[str, Any], width: int) -> float:
    """Return how long it takes from Tidy to the new drawing, in milliseconds."""
    agent = bench.agent(components, drawing(components, width))
    times: list[float] = []
    with bench.page(f"/agents/{agent}/edit", {"drawn": '[data-page=edit][data-ready="1"] [data-testid=node]'}) as tab:
        firsts(tab, "drawn")
        for _ in range(4):
            tab.wait_for_timeout(1_000)
            times.append(tab.evaluate(TIDY))
            tab.get_by_role("button", name="Undo").click()
    return statistics.median(times[1:])  # the first loads the program that lays out


MEASUREMENTS: Mapping[str, Callable[[Bench], list[Figure]]] = {
    "P1": first_load,
    "P2": open_100,
    "P3": open_10_000,
    "P4": draw_1_000,
    "P5": live_latency,
    "P6": text_deltas,
    "P7": list_100_000,
    "P8": watchers,
    "P11": compare_10_000,
    "P12": edit_200,
}


def markdown(figures: Sequence[Figure]) -> str:
    """Return the table."""
    lines = ["| | | measured | goal |", "|---|---|---:|---:|"]
    lines += [f"| {each.name} | {each.measure} | {each.value} | {each.goal} |" for each in figures]
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="which goals, for example P3,P4; all of them by default")
    parser.add_argument("--half-hour", action="store_true", help="P10 over half an hour, else over two minutes")
    options = parser.parse_args()
    chosen = [each for each in options.only.split(",") if each] or [*MEASUREMENTS, "P10"]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("There is no Chromium. Install it and run this again.")
    folder = Path(tempfile.mkdtemp(prefix="easel-viewer-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    figures: list[Figure] = []
    load = os.getloadavg()[0]
    try:
        with (
            run_deployment(folder, options=["--interval", str(DELTA_INTERVAL)]) as stage,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            bench = Bench(stage, signed_in_context(browser, stage))
            for name in chosen:
                measure = MEASUREMENTS.get(name)
                figures += measure(bench) if measure else heap_growth(bench, 30 if options.half_hour else 2)
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"load before: {load:.1f}, after: {os.getloadavg()[0]:.1f}\n\n{markdown(figures)}", flush=True)  # noqa: T201 (what this is for)


if __name__ == "__main__":
    main()
