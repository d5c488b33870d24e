"""A walk over all pages with data: nothing goes wrong, nothing is asked of another host, and no setting of the reader's
system or window loses a part of them.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.pages.conftest import Deployment, ReaderOf
from tests.pages.walking import Walk, prepare_walk, visit_stops


@pytest.fixture(scope="module")
def walk(deployment: Deployment) -> Iterator[Walk]:
    """The tenant whose pages are visited."""
    prepared = prepare_walk(deployment.server)
    yield prepared
    prepared.owner.http.close()


def only_the_api(server: Server) -> Any:
    """Return options of a browser's context that sends every request but those to the API to a proxy that is not there."""
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
