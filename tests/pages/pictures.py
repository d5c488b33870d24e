"""Pictures of the web pages for the documentation, made from real runs: `make pictures`."""

import json
import sys
import tempfile
from pathlib import Path
from shutil import which
from typing import Any

from playwright.sync_api import sync_playwright

from tests import services as test_services
from tests.integration.api.browsers import cookie_of
from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN
from tests.pages import exported_runs
from tests.pages.conftest import CHROMIUM_FLAGS
from tests.pages.exported_runs import ROOT, Producer

TEMPLATES = ("customer_support", "web_research", "list_report")
SUPPORT = ROOT / "examples" / "support_triage.json"
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 720}


def main() -> int:
    """Write the pictures; return the exit code."""
    chromium = which("chromium") or which("chromium-browser")
    if chromium is None:
        sys.stderr.write("There is no Chromium. Install it and run this again.\n")
        return 1
    PICTURES.mkdir(exist_ok=True)
    with test_services.shared_folder() as home, test_services.running(home) as services:
        template = test_services.migrated_template(services.database_url, home)
        with (
            test_services.fresh_database(services.database_url, template) as database_url,
            tempfile.TemporaryDirectory() as folder,
            exported_runs.producer(
                database_url, test_services.emptied_redis(services.redis_url, "api"), Path(folder)
            ) as (producer, server),
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
            _take_file_pictures(browser, server, producer)
            _take_live_pictures(browser, server)
            browser.close()
    return 0


def _take_file_pictures(browser: Any, server: Server, producer: Producer) -> None:
    """Take the pictures of runs out of files."""
    support, agent = exported_runs.support_run(producer), exported_runs.agent_run(producer)
    steps = json.loads(support.read_text(encoding="utf-8"))["activations"]
    reply = next(row["id"] for row in steps if row["node_id"] == "LLM:Reply")
    for name, theme, file, search in (
        ("open-graph", "light", support, f"step={reply}&tab=input"),
        ("open-time", "dark", agent, "view=time"),
    ):
        page = browser.new_page(viewport=SIZE, color_scheme=theme)
        page.goto(f"{server.url}/open?{search}")
        page.locator("input[type=file]").set_input_files(file)
        page.get_by_test_id("run-header").wait_for()
        _take(page, name)


def _take_live_pictures(browser: Any, server: Server) -> None:
    """Take the pictures of pages with data of a server."""
    client = server.client()
    templates = {name: client.http.post(f"/api/v1/viewer/agents?template={name}").json()["id"] for name in TEMPLATES}
    support = client.agent(json.loads(SUPPORT.read_text(encoding="utf-8")), "Support triage")
    form = client.agent(exported_runs.FORM, "Return form")
    broken = client.agent(BROKEN, "Count the words")
    started = [
        client.start(agent, query)
        for agent, query in (
            (support, "My invoice is wrong: I was charged twice"),
            (support, "The app crashes when I open a report"),
            (form, "I want to return my order"),
            (broken, "How many words has this?"),
            (support, "My invoice is wrong: I was charged twice, and the amount differs"),
        )
    ]
    runs = [each["run_id"] for each in started]
    for run_id in runs:
        client.wait_for(run_id, "succeeded", "failed", "waiting")
    triaged = client.http.get(f"/api/v1/runs/{runs[0]}/activations").json()
    place = {name: at for at, name in enumerate(triaged["columns"])}
    reply = next(
        row[place["id"]] for row in triaged["rows"] if triaged["strings"][row[place["node_id"]]] == "LLM:Reply"
    )
    cookie = cookie_of(server.url, token=client.token)
    for name, theme, address in (
        ("runs", "light", "/runs"),
        ("run", "light", f"/runs/{runs[0]}?step={reply}&tab=output"),
        ("time", "dark", f"/runs/{runs[0]}?view=time"),
        ("form", "light", f"/runs/{runs[2]}?view=talk"),
        ("compare", "light", f"/compare/{runs[0]}/{runs[1]}"),
        ("editor", "light", f"/agents/{templates['customer_support']}/edit"),
        ("playground", "dark", f"/agents/{support}/play?conversation={started[0]['session_id']}"),
        ("agents", "light", "/agents"),
        ("overview", "light", "/overview"),
    ):
        context = browser.new_context(viewport=SIZE, color_scheme=theme)
        context.add_cookies([{"name": "easel", "value": cookie, "url": server.url, "httpOnly": True}])
        page = context.new_page()
        page.goto(f"{server.url}{address}")
        page.locator('[data-testid=page][data-ready="1"]').wait_for()
        _take(page, name)
        context.close()


def _take(page: Any, name: str) -> None:
    page.wait_for_timeout(800)  # until the drawing has been fitted
    page.screenshot(path=PICTURES / f"{name}.png")
    page.close()


if __name__ == "__main__":
    sys.exit(main())
