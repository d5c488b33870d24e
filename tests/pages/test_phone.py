"""The pages on a phone, by touch."""

from typing import Any

from tests.integration.api.talking import BROKEN, Client
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import FORM
from tests.pages.layout_findings import lost_parts, sideways_scrolling, small_targets
from tests.pages.test_live_run import wait_for_status

SIZE = {"width": 360, "height": 800}


def check_layout(phone: Reader) -> None:
    page = phone.page
    assert (small_targets(page), sideways_scrolling(page), lost_parts(page)) == ([], [], []), page.url


def test_list_run_and_form_are_used_by_touch(reader_of: ReaderOf, deployment: Deployment, client: Client, browser: Any):
    """T129"""
    failed = client.start(client.agent(BROKEN, "Breaks"), "alpha")["run_id"]
    waiting = client.start(client.agent(FORM, "Asks"), "beta")["run_id"]
    client.wait_for(failed, "failed")
    client.wait_for(waiting, "waiting")
    is_mobile = {"is_mobile": True} if browser.browser_type.name != "firefox" else {}  # which does not know it
    phone = reader_of(deployment.server, width=SIZE["width"], has_touch=True, **is_mobile)
    page = phone.page
    page.set_viewport_size(SIZE)
    phone.sign_in(client)

    phone.visit("/runs")
    rows = page.get_by_test_id("run-row")
    rows.filter(has_text="Breaks").wait_for()
    check_layout(phone)
    rows.filter(has_text="Breaks").get_by_role("link").first.tap()
    wait_for_status(phone, "failed")
    for view in ("Graph", "Time", "Log", "Talk"):
        page.get_by_role("tab", name=view, exact=True).tap()
        page.get_by_role("tabpanel", name=view, exact=True).wait_for()
        check_layout(phone)
    page.get_by_role("tab", name="Time", exact=True).tap()
    page.get_by_test_id("step-row").filter(has_text="VariableAssigner:0").tap()
    inspector = page.get_by_role("complementary")
    inspector.get_by_role("heading", name="VariableAssigner:0").wait_for()
    check_layout(phone)
    inspector.get_by_role("button", name="Close").tap()
    inspector.wait_for(state="detached")

    page.get_by_role("navigation").get_by_role("link", name="Runs").tap()
    rows.filter(has_text="Asks").get_by_role("link").first.tap()
    wait_for_status(phone, "waiting")
    page.get_by_role("button", name="Answer").tap()
    page.get_by_role("textbox", name="Name").tap()
    page.keyboard.type("Ada")
    check_layout(phone)
    page.get_by_role("button", name="Send the answer").tap()

    wait_for_status(phone, "succeeded")
    page.get_by_test_id("stream").filter(has_text="Hello Ada").wait_for()
