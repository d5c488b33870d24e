"""The story of a reader who has no pointer: each stop of the focus is seen, and no action loses the focus."""

import re
from typing import Any

from tests.integration.api.talking import BROKEN, Client
from tests.pages.conftest import Reader
from tests.pages.exported_runs import FORM
from tests.pages.test_live_run import wait_for_status
from tests.pages.waiting import expect, wait_for_page

MAX_STOPS = 80
STOP = """() => {
  const at = document.activeElement;
  const style = getComputedStyle(at);
  const label = at.labels?.[0]?.innerText ?? "";
  return {
    id: at.id,
    role: at.getAttribute("role") ?? at.tagName.toLowerCase(),
    name: at.getAttribute("aria-label") ?? (label || at.innerText || at.title || ""),
    isSeen: (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1) || style.boxShadow !== "none",
  };
}"""
HAS_FOCUS = "() => document.activeElement !== null && document.activeElement !== document.body"


class Keyboard:
    """The keyboard of a reader. Each stop that it comes by must be seen."""

    def __init__(self, reader: Reader) -> None:
        self.page = reader.page

    def press(self, *keys: str) -> None:
        """Press keys one after the other; the focus must be somewhere after each."""
        for key in keys:
            self.page.keyboard.press(key)
            self.page.wait_for_function(HAS_FOCUS)

    def write(self, text: str) -> None:
        self.page.keyboard.type(text)

    def go_to(self, name: str, key: str = "Tab") -> None:
        """Press Tab until the focus is on what has this name or id, a regular expression."""
        stops: list[Any] = []
        for _ in range(MAX_STOPS):
            self.page.keyboard.press(key)
            stop = self.page.evaluate(STOP)
            if stop["role"] == "body":  # the end of the page, before its beginning
                continue
            stops.append(stop)
            assert stop["isSeen"], stop
            if re.search(name, stop["name"]) or re.search(name, stop["id"]):
                return
        raise AssertionError(
            f"no stop is {name!r}: {[(stop['role'], stop['id'] or stop['name'][:40]) for stop in stops]}"
        )

    def open(self, run_id: str) -> None:
        """Open a run by an id that was copied: pasted into the palette."""
        self.page.evaluate("text => navigator.clipboard.writeText(text)", run_id)
        self.press("Control+k")
        self.page.get_by_role("combobox", name="Search and actions").wait_for()
        self.press("Control+v")
        self.page.locator(f'[data-testid=run-header][data-run-id="{run_id}"]').wait_for()


def test_whole_story_needs_no_pointer_and_focus_is_never_lost(reader: Reader, client: Client):  # T121, T122
    failed = client.start(client.agent(BROKEN, "Breaks"), "alpha")["run_id"]
    client.wait_for(failed, "failed")
    asking, waiting = (client.start(client.agent(FORM, name), "beta")["run_id"] for name in ("Asks", "Waits"))
    for run_id in (asking, waiting):
        client.wait_for(run_id, "waiting")
    reader.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keyboard, page = Keyboard(reader), reader.page

    reader.visit("/login")
    keyboard.go_to("^Token")
    keyboard.write(client.token)
    keyboard.press("Enter")
    wait_for_page(reader, "runs")

    keyboard.press("/")
    keyboard.write("alpha")
    keyboard.press("Enter")
    expect(page.get_by_test_id("run-row")).to_have_count(1)
    keyboard.go_to(f"^run-{failed}$")
    keyboard.press("Enter")
    wait_for_status(reader, "failed")
    keyboard.go_to("^Show the step")
    keyboard.press("Enter")
    expect(page.locator("aside [role=tabpanel]")).to_contain_text(client.run(failed)["error"].split(": ")[-1])
    keyboard.go_to("^Copy the id of the run", "Shift+Tab")
    keyboard.press("Enter")
    assert page.evaluate("navigator.clipboard.readText()") == failed

    keyboard.open(asking)
    keyboard.go_to("^Cancel")
    keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    for _ in range(6):
        keyboard.press("Tab")
        assert dialog.evaluate("dialog => dialog.contains(document.activeElement)"), "a dialog keeps the focus"
    keyboard.press("Escape")
    dialog.wait_for(state="detached")
    expect(page.locator(":focus")).to_have_text(re.compile("^Cancel"))
    keyboard.press("Enter")
    keyboard.go_to("^Cancel the run")
    keyboard.press("Enter")
    wait_for_status(reader, "cancelled")
    page.wait_for_function(HAS_FOCUS)

    keyboard.open(waiting)
    keyboard.go_to("^Answer$")
    keyboard.press("Enter")
    page.get_by_role("textbox", name="Name").wait_for()
    keyboard.go_to("^Name")
    keyboard.write("Ada")
    keyboard.go_to("^Send the answer")
    keyboard.press("Enter")
    wait_for_status(reader, "succeeded")
    page.wait_for_function(HAS_FOCUS)

    keyboard.go_to("Sign out$")
    page.keyboard.press("Enter")
    wait_for_page(reader, "login")
    assert page.context.cookies() == []
    reader.allow_refusals()
