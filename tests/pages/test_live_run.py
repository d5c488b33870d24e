"""A run of a server in a real browser, while it runs, waits and ends."""

import json
import math
import re
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

import pytest

from tests.integration.api.talking import BROKEN, ECHO, Client, eventually
from tests.integration.worker.scripted_vendor import said
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import FORM, ITEMS, SLOW, PacedAnswer, form_before, large_canvas
from tests.pages.waiting import expect

SNAPSHOT = """() => {
  const all = (testid, read) => [...document.querySelectorAll(`[data-testid=${testid}]`)].map(read);
  return {
    nodes: all("node", ({dataset}) => [dataset.nodeId, dataset.state, dataset.counts]),
    edges: all("edge", ({dataset}) => [dataset.edge, dataset.taken]),
    rows: all("step-row", ({dataset}) => [dataset.activation, dataset.segments]),
    events: all("event-row", (row) => row.innerText),
    streams: all("stream", (stream) => [stream.dataset.stream, stream.innerText]),
  };
}"""

WATCH_MODES = """
    globalThis.modes = [];
    new MutationObserver(() => {
        const mode = document.querySelector("[data-testid=page]")?.dataset.live;
        if (mode && mode !== modes.at(-1)) modes.push(mode);
    }).observe(document, {subtree: true, childList: true, attributeFilter: ["data-live"]});
"""
WATCH_NODES = """
    globalThis.nodesSeen = [];
    new MutationObserver(() => {
        const all = [...document.querySelectorAll("[data-testid=node]")];
        const read = ({dataset}) => [dataset.nodeId, [dataset.state, JSON.parse(dataset.counts)]];
        const seen = Object.fromEntries(all.map(read));
        if (JSON.stringify(seen) !== JSON.stringify(nodesSeen.at(-1))) nodesSeen.push(seen);
    }).observe(document, {subtree: true, childList: true, attributeFilter: ["data-state", "data-counts"]});
"""
WATCH_TEXT = """
    globalThis.grown = [];
    new MutationObserver(() => {
        const length = document.querySelector("[data-testid=stream] [data-text]")?.textContent.trim().length ?? 0;
        if (length > (grown.at(-1)?.[1] ?? 0)) grown.push([performance.timeOrigin + performance.now(), length]);
    }).observe(document, {subtree: true, childList: true, characterData: true});
"""
WATCH_ANNOUNCEMENTS = """
    globalThis.announced = [];
    const isLive = (node) => (node.nodeType === 1 ? node : node.parentElement)?.closest(
        "[role=status], [role=alert], [aria-live]:not([aria-live=off])");
    new MutationObserver((changes) => {
        const regions = new Set(changes.flatMap((change) => [change.target, ...change.addedNodes]).map(isLive));
        for (const region of regions)
            if (region?.innerText.trim()) announced.push([performance.now(), region.innerText]);
    }).observe(document, {subtree: true, childList: true, characterData: true});
"""


@pytest.fixture
def answer(deployment: Deployment) -> Iterator[PacedAnswer]:
    """The next answer of the model: four words, each when the test releases it."""
    paced = PacedAnswer("One ", "two \U0001f9e1 ", "three ", "four.")
    deployment.producer.vendor.script[:] = [paced]
    yield paced
    paced.release(10)


def snapshot(reader: Reader) -> dict[str, Any]:
    """Return what all views show of the run."""
    seen: dict[str, Any] = {}
    for view in ("Graph", "Time", "Log", "Talk"):
        reader.view(view)
        panel = {"Graph": "node", "Time": "step-row", "Log": "event-row", "Talk": "stream"}[view]
        reader.page.get_by_test_id(panel).first.wait_for()
        seen[view] = reader.page.evaluate(SNAPSHOT)
    return seen


def wait_for_status(reader: Reader, status: str) -> None:
    reader.page.locator(f'[data-testid=run-header][data-status="{status}"]').wait_for()


def wait_for_mode(reader: Reader, mode: str) -> None:
    reader.page.locator(f'[data-testid=page][data-live="{mode}"]').wait_for()


def wait_for_text(reader: Reader, text: str) -> None:
    reader.page.get_by_test_id("stream").filter(has_text=text).wait_for()


def shift_clock(reader: Reader, hours: int) -> None:
    """Let the browser's clock be wrong, from the next page on."""
    reader.page.add_init_script(f"""{{
        const Real = Date;
        globalThis.Date = class extends Real {{
            constructor(...given) {{ super(...(given.length ? given : [Date.now()])); }}
            static now() {{ return Real.now() + {hours} * 3_600_000; }}
        }};
    }}""")


def wait_for_right_duration(reader: Reader, client: Client, run_id: str) -> None:
    """Wait until the header shows how long the run has taken by the server's clock, with an error of 1 s at most."""

    def read_error() -> float:
        shown = reader.page.get_by_test_id("run-header").inner_text()
        found = re.search(r"running\s*·\s*(?:(\d+) min )?([\d.]+) (ms|s)\b", shown)
        run = client.run(run_id)
        if found is None:
            return math.inf
        seconds = 60 * int(found[1] or 0) + float(found[2]) / (1000 if found[3] == "ms" else 1)
        return abs(run["now"] / 1000 - datetime.fromisoformat(run["started_at"]).timestamp() - seconds)

    eventually(read_error, lambda error: error <= 1, seconds=30)


def slow_run(client: Client) -> str:
    return client.start(client.agent(SLOW, "a slow one"), "Write.")["run_id"]


def test_text_and_states_follow_a_slow_model_and_equal_a_reload(signed_in: Reader, client: Client, answer: PacedAnswer):
    # T040, T041
    shift_clock(signed_in, 2)  # T045
    run_id = slow_run(client)
    signed_in.visit(f"/runs/{run_id}?view=talk")
    wait_for_mode(signed_in, "stream")
    answer.release()
    wait_for_text(signed_in, "One")
    wait_for_right_duration(signed_in, client, run_id)
    answer.release()
    wait_for_text(signed_in, "One two \U0001f9e1")
    signed_in.view("Graph")
    expect(signed_in.node("LLM:Writer")).to_have_attribute("data-state", "running")
    expect(signed_in.page.get_by_test_id("run-header")).to_contain_text("live")

    answer.release(2)
    wait_for_status(signed_in, "succeeded")
    wait_for_mode(signed_in, "off")

    live = snapshot(signed_in)
    assert "One two \U0001f9e1 three four." in live["Talk"]["streams"][0][1]
    assert [state for _, state, _ in live["Graph"]["nodes"]] == ["done"] * 3
    assert sum("live?" in url or url.endswith("/live") for url in signed_in.requested) == 1
    signed_in.page.reload()
    signed_in.page.locator('[data-testid=page][data-ready="1"]').wait_for()
    assert snapshot(signed_in) == live


class SteadyAnswer(list[dict[str, Any]]):
    """An answer of which 20 deltas are sent in a second; `sent_at` has when, in seconds since 1970."""

    def __init__(self, words: int) -> None:
        super().__init__(said(*(f"word{number} " for number in range(words))))
        self.sent_at: list[float] = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for delta in super().__iter__():
            time.sleep(0.05)
            self.sent_at.append(time.time())
            yield delta


def test_text_grows_every_300_ms_at_least_while_the_model_writes(
    signed_in: Reader, client: Client, deployment: Deployment
):  # T040
    steady = SteadyAnswer(words=60)
    deployment.producer.vendor.script[:] = [steady]
    signed_in.page.add_init_script(WATCH_TEXT)
    run_id = client.start(client.agent(form_before(SLOW)), "hello")["run_id"]
    client.wait_for(run_id, "waiting")
    signed_in.visit(f"/runs/{run_id}?view=talk")
    wait_for_mode(signed_in, "stream")
    loads = sum(url.endswith(("?view=talk", "/start.js")) for url in signed_in.requested)

    client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "Ada"}})
    wait_for_text(signed_in, "word59")
    wait_for_status(signed_in, "succeeded")

    grown = [at / 1000 for at, _ in signed_in.page.evaluate("grown")]
    gaps = sorted(later - sooner for sooner, later in pairwise(grown))
    pauses = [later - sooner for sooner, later in pairwise(steady.sent_at)]
    allowed = 0.3 + max(pauses)
    assert gaps[len(gaps) * 9 // 10] < allowed, (gaps, pauses)  # a busy machine stops a browser now and then
    assert sum(gap > allowed for gap in gaps) <= 2, (gaps, pauses)
    assert sum(url.endswith(("?view=talk", "/start.js")) for url in signed_in.requested) == loads


@pytest.mark.parametrize("items", [150, pytest.param(ITEMS, marks=pytest.mark.long)])
def test_counts_of_an_iteration_go_up_while_it_is_open(signed_in: Reader, client: Client, items: int):  # T034
    run_id = client.start(client.agent(form_before(large_canvas())), ",".join(map(str, range(items))))["run_id"]
    client.wait_for(run_id, "waiting")
    signed_in.page.add_init_script(WATCH_NODES)
    signed_in.visit(f"/runs/{run_id}")
    signed_in.node("Iteration:Rows").wait_for()
    client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "Ada"}})
    signed_in.page.locator('[data-testid=run-header][data-status="succeeded"]').wait_for(timeout=600_000)
    wait_for_mode(signed_in, "off")

    expect(signed_in.node("StringTransform:Second")).to_have_attribute("data-counts", f'{{"done":{items}}}')
    expect(signed_in.node("Iteration:Rows")).to_contain_text(f"{items:,} of {items:,} done")
    seen = signed_in.page.evaluate("nodesSeen")
    states = [state for state, _ in groupby(each["Iteration:Rows"][0] for each in seen if "Iteration:Rows" in each)]
    assert states[states.index("open") :] == ["open", "done"]
    done = [each["StringTransform:Second"][1].get("done", 0) for each in seen if "StringTransform:Second" in each]
    assert done == sorted(done)
    assert len(set(done)) > 2  # it was seen on the way


def test_running_iteration_is_announced_at_most_once_in_five_seconds(signed_in: Reader, client: Client):  # T127
    run_id = client.start(client.agent(large_canvas()), ",".join(map(str, range(150))))["run_id"]
    signed_in.page.add_init_script(WATCH_ANNOUNCEMENTS)
    signed_in.visit(f"/runs/{run_id}?view=time&find=Second")
    wait_for_status(signed_in, "succeeded")

    announced = eventually(
        lambda: signed_in.page.evaluate("announced"),
        lambda found: any("The run is now: succeeded." in text for _, text in found),
        seconds=30,
    )
    gaps = [later - sooner for (sooner, _), (later, _) in pairwise(announced)]
    assert all(gap > 4_900 for gap in gaps), announced


def test_hidden_tabs_hold_no_stream_so_that_eight_of_one_browser_load(signed_in: Reader, client: Client):  # T048
    runs = [client.start(client.agent(FORM, f"form {number}"), "hi")["run_id"] for number in range(8)]
    hidden = [signed_in.page.context.new_page() for _ in runs[1:]]
    for tab, run_id in zip(hidden, runs[1:], strict=True):
        tab.add_init_script("Object.defineProperty(document, 'hidden', {get: () => true})")
        tab.goto(f"{signed_in.url}/runs/{run_id}", wait_until="commit")

    signed_in.visit(f"/runs/{runs[0]}")

    wait_for_status(signed_in, "waiting")
    wait_for_mode(signed_in, "stream")
    for tab in hidden:
        tab.locator('[data-testid=run-header][data-status="waiting"]').wait_for()
        tab.close()


def test_bars_of_time_are_drawn_for_steps_that_arrive_after_the_page(signed_in: Reader, client: Client):
    run_id = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(run_id, "waiting")

    signed_in.visit(f"/runs/{run_id}?view=time")

    signed_in.page.locator("[data-testid=step-row] .segment").first.wait_for(state="attached")


def test_reload_in_the_middle_of_a_text_shows_it_from_its_beginning(
    signed_in: Reader, client: Client, answer: PacedAnswer
):  # T042
    shift_clock(signed_in, -2)  # T045
    run_id = slow_run(client)
    signed_in.visit(f"/runs/{run_id}?view=talk")
    answer.release(2)
    wait_for_text(signed_in, "two")

    signed_in.page.reload()
    wait_for_text(signed_in, "One two \U0001f9e1")
    wait_for_right_duration(signed_in, client, run_id)
    answer.release(2)

    wait_for_text(signed_in, "One two \U0001f9e1 three four.")
    wait_for_status(signed_in, "succeeded")


def test_stream_that_breaks_is_continued_without_a_gap_or_repetition(
    signed_in: Reader, client: Client, answer: PacedAnswer
):  # T043
    run_id = slow_run(client)
    answer.release(2)
    first_part = beginning_of_stream(client, run_id, "two")
    tried: list[str] = []

    def break_twice(route: Any) -> None:
        tried.append(route.request.url)
        if len(tried) == 1:
            route.fulfill(status=200, content_type="text/event-stream", body=first_part)
        elif len(tried) == 2:
            route.abort()
        else:
            route.continue_()

    signed_in.page.route("**/api/v1/runs/*/live*", break_twice)
    signed_in.page.add_init_script(WATCH_MODES)
    signed_in.visit(f"/runs/{run_id}?view=talk")
    wait_for_text(signed_in, "One two")
    eventually(
        lambda: signed_in.page.evaluate("modes"), lambda modes: modes[-3:] == ["stream", "away", "stream"], seconds=30
    )
    answer.release(2)

    wait_for_text(signed_in, "One two \U0001f9e1 three four.")
    wait_for_status(signed_in, "succeeded")
    assert [("after=" in url) for url in tried] == [False, True, True]
    signed_in.allow_refusals()


def beginning_of_stream(client: Client, run_id: str, word: str) -> str:
    """Return the live stream of a run up to the text delta that has a word."""
    lines: list[str] = []
    with client.http.stream("GET", f"/api/v1/runs/{run_id}/live", headers={"Accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if not line and any(f"{word} " in each and '"offset"' in each for each in lines[-4:]):
                break
    return "\n".join(lines) + "\n"


def test_run_is_followed_by_polling_where_there_is_no_stream(signed_in: Reader, client: Client, answer: PacedAnswer):
    # T041
    refused = json.dumps({"code": "not_acceptable", "message": "no streams here", "details": None})
    signed_in.page.route(
        "**/api/v1/runs/*/live*", lambda route: route.fulfill(status=406, content_type="application/json", body=refused)
    )
    run_id = slow_run(client)
    signed_in.visit(f"/runs/{run_id}?view=talk")
    wait_for_mode(signed_in, "polling")
    expect(signed_in.page.get_by_test_id("run-header")).to_contain_text("polling")

    answer.release(4)

    wait_for_text(signed_in, "One two \U0001f9e1 three four.")
    wait_for_status(signed_in, "succeeded")
    polled = snapshot(signed_in)
    signed_in.allow_refusals()
    signed_in.page.unroute("**/api/v1/runs/*/live*")
    signed_in.page.reload()
    signed_in.page.locator('[data-testid=page][data-ready="1"]').wait_for()
    reloaded = snapshot(signed_in)
    assert reloaded["Log"]["events"] == polled["Log"]["events"]
    assert reloaded == polled
    signed_in.allow_refusals()


def test_cancel_asks_once_and_ends_a_streaming_run(signed_in: Reader, client: Client, answer: PacedAnswer):  # T075
    run_id = slow_run(client)
    signed_in.visit(f"/runs/{run_id}")
    answer.release()

    signed_in.page.get_by_role("button", name="Cancel", exact=True).click()
    signed_in.page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()

    wait_for_status(signed_in, "cancelled")
    assert client.run(run_id)["status"] == "cancelled"
    signed_in.page.get_by_role("button", name="Cancel", exact=True).wait_for(state="detached")


def test_question_before_a_cancel_can_be_refused(signed_in: Reader, client: Client):  # T075
    run_id = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(run_id, "waiting")
    signed_in.visit(f"/runs/{run_id}")

    signed_in.page.get_by_role("button", name="Cancel", exact=True).click()
    signed_in.page.keyboard.press("Escape")

    signed_in.page.get_by_role("dialog").wait_for(state="detached")
    assert client.run(run_id)["status"] == "waiting"


def test_form_refuses_empty_fields_and_its_answer_continues_the_run(
    reader_of: ReaderOf, deployment: Deployment, client: Client
):  # T070
    run_id = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(run_id, "waiting")
    reader, other = reader_of(deployment.server), reader_of(deployment.server)
    for each in (reader, other):
        each.sign_in(client)
        each.visit(f"/runs/{run_id}?view=talk")
    expect(reader.page.get_by_test_id("explain")).to_have_attribute("data-waits-for", "person")

    reader.page.get_by_role("button", name="Send the answer").click()
    field = reader.page.get_by_role("textbox", name="Name")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("Ada")
    reader.page.get_by_role("button", name="Send the answer").click()

    for each in (reader, other):
        wait_for_text(each, "Hello Ada")
        wait_for_status(each, "succeeded")
        expect(each.page.get_by_role("region", name="Open form")).to_have_count(0)


def test_second_of_two_answers_to_a_form_is_told_that_it_was_answered(
    reader_of: ReaderOf, deployment: Deployment, client: Client
):  # T071
    run_id = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(run_id, "waiting")
    first, second = reader_of(deployment.server), reader_of(deployment.server)
    for each, name in ((first, "Grace"), (second, "Ada")):
        each.sign_in(client)
        each.visit(f"/runs/{run_id}?view=talk")
        each.page.get_by_role("textbox", name="Name").fill(name)
    underway: list[Any] = []
    second.page.route("**/resume", lambda route: underway.append(route))

    second.page.get_by_role("button", name="Send the answer").click()
    eventually(lambda: (second.page.title(), len(underway))[1], lambda count: count == 1, seconds=30)
    first.page.get_by_role("button", name="Send the answer").click()
    wait_for_text(first, "Hello Grace")
    with second.page.expect_response("**/resume") as reply:
        underway[0].continue_()

    assert reply.value.status == 409
    second.page.get_by_role("alert").filter(has_text="This form has been answered already").wait_for()
    wait_for_text(second, "Hello Grace")
    wait_for_status(second, "succeeded")
    expect(second.page.get_by_role("button", name="Send the answer")).to_have_count(0)
    second.allow_refusals()


def test_raised_budget_continues_a_run_that_it_has_stopped(signed_in: Reader, client: Client, answer: PacedAnswer):
    # T074
    answer.release(10)
    run_id = client.start(client.agent(SLOW), "Write.", budget={"tokens": 1})["run_id"]
    client.wait_for(run_id, "waiting")
    signed_in.visit(f"/runs/{run_id}")
    expect(signed_in.page.get_by_test_id("explain")).to_have_attribute("data-waits-for", "budget")

    signed_in.page.get_by_role("button", name="Raise budget").click()
    pane = signed_in.page.get_by_role("region", name="The run waits for a budget")
    expect(pane).to_contain_text("of 1 tokens")
    pane.get_by_role("textbox").fill("100000")
    pane.get_by_role("button", name="Raise and continue").click()

    wait_for_status(signed_in, "succeeded")
    wait_for_text(signed_in, "four.")


def test_failed_run_leads_to_its_step_and_shows_values_of_the_server(signed_in: Reader, client: Client):
    run_id = client.start(client.agent(BROKEN), "hello")["run_id"]
    client.wait_for(run_id, "failed")
    signed_in.visit(f"/runs/{run_id}")

    signed_in.page.get_by_test_id("explain").get_by_role("button", name="Show the step").click()

    expect(signed_in.page.get_by_role("complementary")).to_contain_text("Can't find variable")
    signed_in.tab("raw").get_by_text('"node_id": "VariableAssigner:0"').wait_for()


def test_large_value_is_shown_whole_on_request(signed_in: Reader, client: Client):
    text = "x" * 40_000 + "END"
    run_id = client.start(client.agent(ECHO), text)["run_id"]
    run = client.wait_for(run_id, "succeeded")
    step = next(row["id"] for row in run["activations"] if row["node_id"] == "Message:0")
    signed_in.visit(f"/runs/{run_id}?step={step}&tab=output")
    panel = signed_in.page.locator("aside [role=tabpanel]")

    panel.get_by_role("button", name="Show the whole value").first.click()
    panel.get_by_role("button", name="Show more").first.click()

    expect(panel).to_contain_text("END")
