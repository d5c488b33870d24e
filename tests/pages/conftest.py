"""The web pages in a real browser: one deployment and one Chromium for all tests, a new context for each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

from embedded import EmbeddedServers
from tests import services as test_services
from tests.chromium import chosen_browser, find_chromium, why_missing
from tests.integration.api.browsers import cookie_of, some_address
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import Client
from tests.pages import exported_runs
from tests.pages.exported_runs import Producer
from tests.pages.waiting import TIMEOUT_MS, expect
from tests.pages.walking import Walk, prepare_walk

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WIDTH, HEIGHT = 1440, 900

RECORD = """
window.__violations = [];
window.__rejections = [];
window.__longTasks = [];
addEventListener("securitypolicyviolation", (event) => window.__violations.push(event.violatedDirective));
addEventListener("unhandledrejection", (event) => window.__rejections.push(String(event.reason)));
if (PerformanceObserver.supportedEntryTypes.includes("longtask"))
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.__longTasks.push(entry.duration);
  }).observe({entryTypes: ["longtask"]});
"""


@dataclass(frozen=True)
class Deployment:
    """An API with an engine, and what exports runs of it."""

    server: Server
    producer: Producer
    _files: dict[str, Path] = field(default_factory=dict[str, Path])

    def file(self, name: str) -> Path:
        """Return an exported run by the name of its function in exported_runs; each is exported once."""
        if name not in self._files:
            export: Callable[[Producer], Path] = getattr(exported_runs, name)
            self._files[name] = export(self.producer)
        return self._files[name]

    @property
    def large_file(self) -> Path:
        """Return the file of a run with 10,000 steps."""
        if "large" not in self._files:
            few = exported_runs.iteration_run(self.producer, 4)
            self._files["large"] = exported_runs.repeat_items(few, exported_runs.ITEMS)
        return self._files["large"]


@pytest.fixture(scope="package")
def deployment(
    services: EmbeddedServers, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """An API whose runs are executed, with a database of its own."""
    redis_url = test_services.emptied_redis(services.redis_url, "api")
    with (
        test_services.fresh_database(services.database_url, template) as database_url,
        exported_runs.producer(database_url, redis_url, tmp_path_factory.mktemp("runs")) as (producer, server),
    ):
        yield Deployment(server, producer)


@pytest.fixture(scope="package")
def walk(deployment: Deployment) -> Iterator[Walk]:
    """The tenant whose pages all have data."""
    prepared = prepare_walk(deployment.server)
    yield prepared
    prepared.owner.http.close()


@pytest.fixture
def client(deployment: Deployment) -> Iterator[Client]:
    """A client of the deployment with a tenant of its own."""
    made = deployment.server.client()
    yield made
    made.http.close()


@pytest.fixture
def server_below_path(deployment: Deployment) -> Iterator[Server]:
    """An API below /easel."""
    with start_server(with_settings(deployment.server.config, base_path="/easel")) as server:
        yield server


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A browser without a window: Chromium, or the one of EASEL_TEST_BROWSER, without which all tests fail."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    name = chosen_browser()
    if name != "chromium":
        with sync_api.sync_playwright() as playwright:
            missing = why_missing(playwright, name)
            assert missing is None, missing
            other = getattr(playwright, name).launch()
            yield other
            other.close()
        return
    executable = find_chromium()
    if executable is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_FLAGS))
        yield chromium
        chromium.close()


@dataclass
class Reader:
    """A browser's page, and everything that must not happen on it."""

    page: Any
    url: str
    problems: list[str]
    requested: list[str]

    def visit(self, address: str = "/open") -> None:
        """Go to an address and wait until the page is ready."""
        self.page.goto(f"{self.url}{address}")
        self.page.locator('[data-testid=page][data-ready="1"]').wait_for()

    def open(self, file: Path, search: str = "") -> None:
        """Open an exported run on the page `/open`, with search parameters."""
        self.visit(f"/open?{search}" if search else "/open")
        self.choose(file)
        self.page.get_by_test_id("run-header").wait_for()

    def choose(self, file: Path) -> None:
        """Give a file to the page's file picker."""
        self.page.locator("input[type=file]").set_input_files(file)

    def sign_in(self, client: Client) -> None:
        """Give the browser the cookie of a sign-in with a client's token."""
        cookie = {"name": "easel", "value": cookie_of(self.url, token=client.token), "url": self.url}
        self.page.context.add_cookies([{**cookie, "httpOnly": True, "sameSite": "Strict"}])

    def allow_refusals(self) -> None:
        """Forget that requests were refused, which a browser reports as errors of the page."""
        self.problems[:] = [each for each in self.problems if "Failed to load resource" not in each]

    def view(self, name: str) -> None:
        """Show one of the views Graph, Time, Log, Talk."""
        self.page.get_by_role("tab", name=name, exact=True).click()
        panel = self.page.get_by_role("tabpanel", name=name, exact=True)
        panel.wait_for()
        for text in ("Loading…", "Laying out the graph…"):
            expect(panel.get_by_text(text)).to_have_count(0)

    def tab(self, name: str) -> Any:
        """Show a tab of the inspector; return its panel."""
        self.page.locator(f"[data-testid=inspector-tab][data-tab={name}]").click()
        return self.page.locator("aside [role=tabpanel]")

    def node(self, node_id: str) -> Any:
        """Return a node of the graph."""
        return self.page.locator(f'[data-testid=node][data-node-id="{node_id}"]')

    def check(self) -> None:
        """Check that nothing went wrong: no error, no violation of the page's policy, no request to another origin.

        It is checked at the end of every test, and at every stop of a walk over all pages.
        """
        violations, rejections = self.page.evaluate("[window.__violations, window.__rejections]")
        assert (self.problems, violations, rejections) == ([], [], [])


ReaderOf = Callable[..., Reader]


@pytest.fixture
def reader_of(browser: Any) -> Iterator[ReaderOf]:
    """What opens a page in a new context; at the end of the test it is checked that nothing went wrong on it."""
    readers: list[Reader] = []

    def open_reader(
        server: Server, *, width: int = WIDTH, theme: Literal["light", "dark"] = "light", path: str = "", **options: Any
    ) -> Reader:
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme=theme,
            extra_http_headers={"X-Forwarded-For": some_address()},  # tries to sign in are counted by address
            **options,
        )
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script(RECORD)
        page = context.new_page()
        reader = Reader(page, f"{server.url}{path}", [], [])
        page.on("request", lambda request: _note_request(reader, request.url))
        page.on("console", lambda message: _note(reader, message) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: reader.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (reader.problems.append("dialog"), dialog.dismiss()))
        readers.append(reader)
        return reader

    yield open_reader
    for reader in readers:
        if not reader.page.is_closed():
            reader.check()
            reader.page.unroute_all(behavior="ignoreErrors")  # a reply that still comes would fail the next test
        reader.page.context.close()


@pytest.fixture
def reader(reader_of: ReaderOf, deployment: Deployment) -> Reader:
    """A page of the deployment."""
    return reader_of(deployment.server)


@pytest.fixture
def signed_in(reader: Reader, client: Client) -> Reader:
    """A page of the deployment that is signed in as the client."""
    reader.sign_in(client)
    return reader


def _note(reader: Reader, message: Any) -> None:
    reader.problems.append(f"console: {message.text}")


def _note_request(reader: Reader, url: str) -> None:
    reader.requested.append(url)
    if urlsplit(url).scheme in ("http", "https") and not url.startswith(f"{'/'.join(reader.url.split('/')[:3])}/"):
        reader.problems.append(f"request to {url}")
