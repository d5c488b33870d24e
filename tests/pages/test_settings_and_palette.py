"""Settings, the command palette and the list of keys in a real browser."""

from typing import Any
from uuid import uuid4

from tests.integration.api.browsers import cookie_of
from tests.integration.api.talking import ECHO, Client, eventually
from tests.pages.axe_findings import axe_findings, width_of
from tests.pages.conftest import Deployment, Reader, ReaderOf

DATASET = "({...document.documentElement.dataset})"


def finished(client: Client, query: str, title: str = "") -> dict[str, Any]:
    started = client.start(client.agent(ECHO, title or uuid4().hex), query)
    client.wait_for(started["run_id"], "succeeded")
    return started


def choose(reader: Reader, group: str, choice: str) -> None:
    reader.page.get_by_role("group", name=group).get_by_role("radio", name=choice).check()


def focused(reader: Reader) -> str | None:
    return reader.page.evaluate("document.activeElement?.id || document.activeElement?.tagName")


def open_palette(reader: Reader) -> Any:
    """Open the palette by its key; return its field."""
    reader.page.keyboard.press("Control+k")
    field = reader.page.get_by_role("combobox", name="Search and actions")
    field.wait_for()
    return field


def test_settings_are_obeyed_at_once_and_after_a_reload(signed_in: Reader, client: Client):
    run_id = finished(client, "hello")["run_id"]
    signed_in.visit("/settings")

    choose(signed_in, "Theme", "high contrast")
    choose(signed_in, "Density of lists", "compact")
    choose(signed_in, "Motion", "off")
    choose(signed_in, "Time zone", "UTC")
    choose(signed_in, "Times in lists", "date and time")
    signed_in.page.get_by_text(" UTC.").wait_for()
    expected = {"theme": "light", "contrast": "more", "density": "compact", "motion": "off"}
    assert signed_in.page.evaluate(DATASET).items() >= expected.items()
    signed_in.visit("/runs")

    assert signed_in.page.evaluate(DATASET).items() >= expected.items()
    row = signed_in.page.locator(f'[data-testid=run-row][data-run-id="{run_id}"]')
    assert row.bounding_box()["height"] == 28
    assert row.locator("time").get_attribute("title").endswith(" UTC")
    assert "ago" not in row.inner_text()
    surface = "getComputedStyle(document.documentElement).getPropertyValue('--surface')"
    assert signed_in.page.evaluate(surface).startswith(("oklch(1 ", "lab(100"))  # white


def test_rail_is_widened_and_stays_so(signed_in: Reader):
    signed_in.visit("/settings")
    rail = signed_in.page.get_by_role("navigation", name="Pages")
    assert rail.bounding_box()["width"] < 100

    signed_in.page.get_by_role("button", name="Widen the list of pages").click()
    signed_in.page.reload()
    signed_in.page.get_by_role("button", name="Narrow the list of pages").wait_for()

    assert rail.bounding_box()["width"] == 200


# T126
def test_single_keys_do_nothing_when_switched_off_and_help_says_so(signed_in: Reader, client: Client):
    run_id = finished(client, "hello")["run_id"]
    signed_in.visit("/runs")
    signed_in.page.get_by_test_id("run-row").wait_for()
    signed_in.page.keyboard.press("j")
    signed_in.page.wait_for_function("id => document.activeElement?.id === id", arg=f"run-{run_id}")
    signed_in.page.keyboard.press("?")
    help_ = signed_in.page.get_by_role("dialog", name="Keys that work here")
    help_.wait_for()
    assert {"j", "k", "x", "X", "/", "?", "Ctrl+K"} <= set(help_.locator("kbd").all_inner_texts())
    signed_in.page.keyboard.press("Escape")
    signed_in.page.wait_for_function("id => document.activeElement?.id === id", arg=f"run-{run_id}")

    signed_in.page.keyboard.press("/")
    assert signed_in.page.evaluate("document.activeElement.type") == "search"
    signed_in.page.keyboard.type("jx?")
    assert signed_in.page.get_by_role("searchbox").input_value() == "jx?"
    assert help_.count() == 0

    signed_in.visit("/settings")
    signed_in.page.get_by_role("switch", name="Single keys").uncheck()
    signed_in.visit("/runs")
    signed_in.page.get_by_test_id("run-row").wait_for()
    signed_in.page.keyboard.press("j")
    assert focused(signed_in) == "BODY"
    signed_in.page.get_by_role("button", name="Keys that work here").click()
    help_.wait_for()
    assert help_.locator("kbd").all_inner_texts() == ["Ctrl+K"]
    assert "switched off" in help_.inner_text()


def test_sign_in_of_another_browser_is_ended(
    reader_of: ReaderOf, deployment: Deployment, signed_in: Reader, client: Client
):
    other = reader_of(deployment.server)
    other.sign_in(client)
    other.visit("/runs")
    cookie_of(signed_in.url, token=client.token)  # a third one, which stays
    signed_in.visit("/settings")
    rows = signed_in.page.get_by_test_id("sign-in")
    eventually(rows.count, lambda count: count == 3)
    is_current = "rows => rows.map((row) => row.dataset.current)"
    current = signed_in.page.eval_on_selector_all("[data-testid=sign-in]", is_current)
    assert current == ["0", "0", "1"]  # the newest first: the third, then the other browser, then this one

    rows.nth(1).get_by_role("button", name="End").click()
    dialog = signed_in.page.get_by_role("dialog", name="End this sign-in?")
    dialog.get_by_role("button", name="End").click()

    eventually(rows.count, lambda count: count == 2)
    other.page.get_by_text("You are signed out").wait_for()
    other.allow_refusals()
    assert signed_in.page.url.endswith("/settings")


# T128
def test_palette_finds_runs_agents_conversations_and_actions(signed_in: Reader, client: Client):
    started = finished(client, "a question about unicorns", "The unicorn agent")
    signed_in.visit("/runs")
    signed_in.page.get_by_test_id("run-row").wait_for()
    search = signed_in.page.get_by_role("searchbox", name="Search runs")
    search.focus()

    field = open_palette(signed_in)
    field.fill("unicorn")
    options = signed_in.page.get_by_role("option")
    eventually(options.count, lambda count: count == 3)
    for group in ("Runs", "Agents", "Conversations"):
        assert signed_in.page.get_by_role("group", name=group).get_by_role("option").count() == 1, group
    signed_in.page.keyboard.press("Escape")
    signed_in.page.get_by_role("dialog").wait_for(state="detached")
    signed_in.page.wait_for_function("document.activeElement?.type === 'search'")

    field = open_palette(signed_in)
    field.fill("next run")
    signed_in.page.get_by_role("option", name="Next run").wait_for()
    signed_in.page.keyboard.press("Enter")
    signed_in.page.wait_for_function("id => document.activeElement?.id === id", arg=f"run-{started['run_id']}")

    field = open_palette(signed_in)
    field.fill("unicorn")
    signed_in.page.get_by_role("group", name="Conversations").get_by_role("option").wait_for()
    signed_in.page.keyboard.press("ArrowUp")  # from the first to the last
    signed_in.page.keyboard.press("Enter")
    signed_in.page.wait_for_url(f"**/conversations/{started['session_id']}")


# T128
def test_pasted_id_opens_what_has_it_and_an_unknown_one_says_so(signed_in: Reader, client: Client):
    started = finished(client, "hello")
    signed_in.page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    def paste(text: str) -> None:
        signed_in.page.evaluate("text => navigator.clipboard.writeText(text)", text)
        open_palette(signed_in)
        signed_in.page.keyboard.press("Control+v")

    signed_in.visit("/settings")
    paste(started["run_id"])
    signed_in.page.wait_for_url(f"**/runs/{started['run_id']}")
    signed_in.page.get_by_test_id("run-header").wait_for()
    paste(f" {started['session_id']}")
    signed_in.page.wait_for_url(f"**/conversations/{started['session_id']}")
    paste(uuid4().hex)

    signed_in.page.get_by_text("No run, agent or conversation has this id.").wait_for()


def test_icon_and_title_follow_the_status_of_the_run(signed_in: Reader, client: Client):
    run_id = finished(client, "hello", "an agent")["run_id"]
    signed_in.visit("/runs")
    icon = signed_in.page.locator('link[rel="icon"]')
    assert icon.get_attribute("href").endswith("icon.svg")

    signed_in.page.locator(f"#run-{run_id}").click()
    signed_in.page.get_by_test_id("run-header").wait_for()
    eventually(signed_in.page.title, lambda title: "succeeded" in title and "an agent" in title)
    eventually(lambda: icon.get_attribute("href"), lambda href: "%2322c55e" in href)
    signed_in.page.go_back()

    eventually(lambda: icon.get_attribute("href"), lambda href: href.endswith("icon.svg"))


def test_axe_finds_nothing_on_settings_and_palette(reader_of: ReaderOf, deployment: Deployment, client: Client):
    finished(client, "a question", "an agent")
    reader = reader_of(deployment.server)
    reader.sign_in(client)
    reader.visit("/settings")
    assert axe_findings(reader.page) == []
    choose(reader, "Theme", "high contrast")
    assert axe_findings(reader.page) == []
    open_palette(reader).fill("question")
    reader.page.get_by_role("group", name="Runs").wait_for()
    assert axe_findings(reader.page) == []
    reader.page.keyboard.press("Escape")
    reader.page.get_by_role("dialog").wait_for(state="detached")
    reader.page.keyboard.press("?")
    reader.page.get_by_role("dialog").wait_for()
    assert axe_findings(reader.page) == []
    reader.page.keyboard.press("Escape")

    reader.page.set_viewport_size({"width": 360, "height": 800})
    reader.page.get_by_role("button", name="More").wait_for()
    eventually(lambda: width_of(reader.page), lambda width: width <= 360)
