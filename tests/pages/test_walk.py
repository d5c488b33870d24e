"""A walk over all pages with data: nothing goes wrong, nothing is asked of another host, and no setting of the reader's
system or window loses a part of them.
"""

from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.pages.conftest import HEIGHT, WIDTH, Deployment, Reader, ReaderOf
from tests.pages.layout_findings import lost_parts, names_of_parts, sideways_scrolling
from tests.pages.walking import Walk, visit_stops


def only_the_api(server: Server) -> Any:
    """Return options of a browser that asks a proxy, which is not there, for everything but the API."""
    return {"proxy": {"server": "http://127.0.0.1:9", "bypass": f"<-loopback>,{server.url.removeprefix('http://')}"}}


def test_walk_over_all_pages_asks_only_the_api_and_has_no_error(
    reader_of: ReaderOf, deployment: Deployment, walk: Walk
):
    """T002, T003: every other port is unreachable from the browser, and a request to one fails the test as well."""
    blocked = only_the_api(deployment.server)
    reader, guest = reader_of(deployment.server, **blocked), reader_of(deployment.server, **blocked)
    with pytest.raises(Exception, match="ERR_PROXY_CONNECTION_FAILED"):  # the block holds
        reader.page.context.new_page().goto(f"http://127.0.0.1:{deployment.producer.vendor.port}/")

    visited = [address for address, _ in visit_stops(walk, deployment, reader, guest)]

    assert visited == [address for address, _ in walk.stops()]


@pytest.mark.long
def test_walk_below_a_path_asks_only_for_what_is_below_it(
    reader_of: ReaderOf, server_below_path: Server, deployment: Deployment, walk: Walk
):
    """T008: deep links, and each page loaded again."""
    reader, guest = (reader_of(server_below_path, path="/easel") for _ in range(2))

    for _, visitor in visit_stops(walk, deployment, reader, guest):
        visitor.page.reload()
        visitor.page.locator('[data-testid=page][data-ready="1"]').wait_for()

    for visitor in (reader, guest):
        asked = [url for url in visitor.requested if url.startswith("http")]
        assert asked
        assert [url for url in asked if not url.startswith(f"{visitor.url}/")] == []


SMALL_WINDOWS = {"twice as large": (WIDTH // 2, HEIGHT // 2), "on a phone": (320, 640)}
RUNNING = """() => document.getAnimations().filter((each) => each.playState === "running")
  .map((each) => each.animationName ?? each.transitionProperty)"""

HAS_THEME = "(theme) => document.documentElement.dataset.theme === theme"
TEN_FRAMES = """() => new Promise((done) => {
  let left = 10;
  const next = () => (left-- ? requestAnimationFrame(next) : done());
  next();
})"""


@pytest.mark.long
def test_small_windows_and_settings_of_the_system_lose_no_part_of_a_page(
    reader_of: ReaderOf, deployment: Deployment, walk: Walk
):
    """T125: 200 % zoom (half the window), 320 pixels, forced colours, reduced motion and the dark scheme."""
    reader, guest = reader_of(deployment.server), reader_of(deployment.server)
    for address, visitor in visit_stops(walk, deployment, reader, guest):
        page = visitor.page
        page.emulate_media(color_scheme="dark", reduced_motion="reduce", forced_colors="active")
        page.wait_for_function(HAS_THEME, arg="dark")
        settle(visitor)
        assert page.evaluate(RUNNING) == [], address
        with_settings = names_of_parts(page)
        page.emulate_media(color_scheme="light", reduced_motion="no-preference", forced_colors="none")
        page.wait_for_function(HAS_THEME, arg="light")
        settle(visitor)
        assert with_settings == names_of_parts(page) != [], address

        for name, (width, height) in SMALL_WINDOWS.items():
            page.set_viewport_size({"width": width, "height": height})
            settle(visitor)
            assert (sideways_scrolling(page), lost_parts(page)) == ([], []), f"{address} {name}"
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def settle(visitor: Reader) -> None:
    """Wait until the page has drawn what it reacts to: its parts are the same twice, ten frames apart."""
    before: list[str] = []
    for _ in range(20):
        visitor.page.evaluate(TEN_FRAMES)
        after = names_of_parts(visitor.page)
        if after == before:
            return
        before = after
    raise AssertionError(f"{visitor.page.url} does not settle")
