"""The focus of the keyboard: each stop is seen on the picture, and dialogs hold it and give it back."""

import io
import re
from typing import Any

import pytest
from PIL import Image, ImageChops

from tests.pages.conftest import Deployment, ReaderOf
from tests.pages.walking import Walk, visit_stops

MAX_STOPS = 150  # on one page
MARGIN = 6  # pixels around a stop, in which its outline may be
STEP = 16  # of 255: what counts as another colour
STOP = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const {x, y, width, height} = at.getBoundingClientRect();
  const classes = at.getAttribute("class") ?? "";
  return {
    kind: [at.tagName, at.getAttribute("role"), at.getAttribute("type"), classes].join(" "),
    name: (at.getAttribute("aria-label") ?? at.innerText ?? "").slice(0, 40),
    box: [x, y, width, height],
    isSeen: at.checkVisibility({visibilityProperty: true, opacityProperty: true}),
  };
}"""
WITHOUT_FOCUS = "() => { globalThis.stop = document.activeElement; stop.blur(); }"
WITH_FOCUS = "() => globalThis.stop.focus({preventScroll: true, focusVisible: true})"
DIALOGS = [
    ("/runs", "^Views", "Save or remove"),
    ("run", "^Share", None),
    ("/agents/{agent_id}/edit", "^Publish", None),
    *(
        pytest.param(*each, marks=pytest.mark.long)
        for each in (
            ("/runs", "^Search", None),
            ("/runs", "keys that work here", None),
            ("run", "^Rerun", "With changes"),
            ("run", "^Compare", None),
            ("waiting", "^Cancel", None),
            ("/agents", "^New agent", None),
            ("/agents/{agent_id}", "^Start a run", None),
            ("/agents/{agent_id}/versions", "^Publish", None),
        )
    ),
]


def picture(page: Any, box: list[float]) -> Image.Image:
    """Return the picture of a box and of what is around it, as far as it is in the window."""
    size = page.viewport_size
    left, top = max(0, box[0] - MARGIN), max(0, box[1] - MARGIN)
    right = min(size["width"], box[0] + box[2] + MARGIN)
    bottom = min(size["height"], box[1] + box[3] + MARGIN)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    return Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("L")


def changed_pixels(one: Image.Image, other: Image.Image) -> int:
    """Return how many pixels of two pictures differ clearly."""
    return sum(ImageChops.difference(one, other).histogram()[STEP:])


@pytest.mark.long
def test_each_stop_of_the_focus_is_seen_on_the_picture(reader_of: ReaderOf, deployment: Deployment, walk: Walk):
    """T122: an outline of at least one side of the stop; stops of one look are compared once."""
    options = {"reduced_motion": "reduce"}
    reader, guest = reader_of(deployment.server, **options), reader_of(deployment.server, **options)
    compared: set[str] = set()
    unseen: list[str] = []

    for address, visitor in visit_stops(walk, deployment, reader, guest):
        page = visitor.page
        for _ in range(MAX_STOPS):
            page.keyboard.press("Tab")
            stop = page.evaluate(STOP)
            if stop is None:  # the end of the page
                break
            if stop["kind"] in compared:
                continue
            compared.add(stop["kind"])
            seen = picture(page, stop["box"])
            page.evaluate(WITHOUT_FOCUS)
            changed = changed_pixels(seen, picture(page, stop["box"]))
            page.evaluate(WITH_FOCUS)
            if not stop["isSeen"] or changed < min(seen.size):
                unseen.append(f"{address[:40]}: {stop['kind']} {stop['name']!r}: {changed} pixels")

    assert unseen == []
    assert len(compared) > 50


@pytest.mark.parametrize(("place", "button", "item"), DIALOGS, ids=lambda value: str(value).strip("^/"))
def test_dialog_holds_the_focus_and_gives_it_back(
    reader_of: ReaderOf, deployment: Deployment, walk: Walk, place: str, button: str, item: str | None
):  # T122
    addresses = {"run": f"/runs/{walk.runs['succeeded']}", "waiting": f"/runs/{walk.runs['waiting']}"}
    reader = reader_of(deployment.server)
    reader.sign_in(walk.owner)
    reader.visit(addresses.get(place) or walk.addresses[place][0])
    page, dialog = reader.page, reader.page.get_by_role("dialog")
    has_focus = "dialog => dialog.contains(document.activeElement) && document.activeElement !== document.body"
    opener = page.get_by_role("button", name=re.compile(button)).first

    opener.focus()
    page.keyboard.press("Enter")
    if item is not None:
        page.get_by_role("menuitem", name=re.compile(item)).focus()
        page.keyboard.press("Enter")
    dialog.wait_for()
    page.wait_for_function("() => document.querySelector('[role=dialog]')?.contains(document.activeElement)")
    for key in [*["Tab"] * 12, *["Shift+Tab"] * 14]:
        page.keyboard.press(key)
        assert dialog.evaluate(has_focus), key
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")

    page.wait_for_function("opener => document.activeElement === opener", arg=opener.element_handle())
