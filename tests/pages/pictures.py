"""Pictures of the web pages for the documentation, made from real runs: `make pictures`."""

import json
import sys
import tempfile
from pathlib import Path
from shutil import which

from playwright.sync_api import sync_playwright

from tests import services as test_services
from tests.pages import exported_runs
from tests.pages.conftest import CHROMIUM_FLAGS

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
            support, agent = exported_runs.support_run(producer), exported_runs.agent_run(producer)
            browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
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
                page.wait_for_timeout(500)  # until the drawing has been fitted
                page.screenshot(path=PICTURES / f"{name}.png")
                page.close()
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
