"""PostgreSQL is really stopped under an open page.

The test runs in a process of its own: it has a deployment on a server of its own, and two deployments cannot run in one
process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import embedded
from store.maintenance.migrate import upgrade
from tests import services as test_services
from tests.pages import exported_runs
from tests.pages.conftest import ReaderOf
from tests.pages.test_live_run import wait_for_mode, wait_for_status, wait_for_text
from tests.pages.test_trouble import answer_form, waiting_run

IS_ALONE = "EASEL_TEST_IS_ALONE"
TIMEOUT = 280  # seconds


@pytest.mark.long
def test_open_page_goes_on_after_postgres_was_stopped_and_started_again():  # T133
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "long",
        __file__,
        "-k",
        "in_a_process",
    ]
    ended = subprocess.run(
        command, env={**own, IS_ALONE: "1"}, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )

    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get(IS_ALONE), reason="the test above runs it in a process of its own")
def test_stop_of_postgres_in_a_process_of_its_own(reader_of: ReaderOf, redis_url: str, tmp_path: Path):
    with (
        test_services.shared_folder() as home,
        embedded.run_servers(home, durable=False, need_redis=False) as servers,
    ):
        upgrade(servers.database_url)
        (postgres,) = servers.owned
        with exported_runs.producer(servers.database_url, redis_url, tmp_path) as (producer, server):
            client, reader = producer.client, reader_of(server)
            run_id = waiting_run(client)
            reader.sign_in(client)
            reader.visit(f"/runs/{run_id}?view=talk")
            wait_for_mode(reader, "stream")
            reader.page.get_by_role("textbox", name="Name").fill("Ada")

            postgres.stop()
            answer_form(reader)
            reader.page.get_by_role("region", name="Open form").get_by_role("alert").wait_for()
            assert reader.page.get_by_role("textbox", name="Name").input_value() == "Ada"
            assert reader.page.get_by_test_id("run-header").is_visible()
            postgres.start_and_wait()

            wait_for_mode(reader, "stream")
            answer_form(reader)
            wait_for_text(reader, "Hello Ada")
            wait_for_status(reader, "succeeded")
            reader.allow_refusals()
            reader.check()
            reader.page.close()
