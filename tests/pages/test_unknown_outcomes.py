"""A run whose worker was lost asks on its page whether a node has acted."""

import pytest

from tests.integration.api.lost_workers import register_post, start_and_lose_worker
from tests.integration.api.talking import Client
from tests.pages.conftest import Deployment, Reader
from tests.pages.test_live_run import wait_for_status, wait_for_text
from tests.pages.waiting import expect


@pytest.fixture(autouse=True)
def unsafe_component(monkeypatch: pytest.MonkeyPatch) -> None:
    register_post(monkeypatch)


def test_question_whether_a_node_has_acted_is_answered_with_its_outputs_or_by_another_attempt(
    signed_in: Reader, deployment: Deployment, client: Client
):  # T073
    acted, did_not_act = (start_and_lose_worker(deployment.server, client) for _ in range(2))
    form = signed_in.page.get_by_role("region", name="Open form")

    signed_in.visit(f"/runs/{acted}?view=talk")
    expect(form).to_contain_text("Has the Post:0 acted?")
    form.get_by_role("textbox").fill("7")
    form.get_by_role("button", name="It happened").click()
    expect(form.get_by_role("alert")).to_have_text("Enter a JSON object.")
    form.get_by_role("textbox").fill('{"id": "7"}')
    form.get_by_role("button", name="It happened").click()
    wait_for_text(signed_in, "Posted 7.")
    wait_for_status(signed_in, "succeeded")

    signed_in.visit(f"/runs/{did_not_act}?view=talk")
    form.get_by_role("button", name="Do it again").click()
    wait_for_text(signed_in, "Posted once more.")
    wait_for_status(signed_in, "succeeded")
    attempts = [[step["attempt"] for step in client.run(run)["activations"]] for run in (acted, did_not_act)]
    assert attempts == [[1, 1, 1], [1, 2, 1]]
