"""A page that follows a run while a process of the deployment is killed and another one is started."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

import httpx2
import pytest

from api.app import ApiConfig
from embedded import EmbeddedServers
from settings import Settings
from tests import services as test_services
from tests.faults.cluster import SHORT_LEASES, Cluster, cluster_on
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import Client, eventually
from tests.integration.worker.scripted_vendor import KEY, ScriptedVendor, vendor_of
from tests.pages.conftest import Reader, ReaderOf
from tests.pages.exported_runs import SLOW, PacedAnswer
from tests.pages.test_live_run import WATCH_MODES, snapshot, wait_for_mode, wait_for_status, wait_for_text
from tests.pgbouncer import free_port

WORDS = ("One ", "two ", "three ", "four.")
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@dataclass
class Processes:
    """A deployment in processes of its own, with a model that answers by a script."""

    cluster: Cluster
    vendor: ScriptedVendor
    port: int
    running: dict[str, Popen[bytes]] = field(default_factory=dict[str, Popen[bytes]])

    @property
    def server(self) -> Server:
        settings = Settings(database_url=self.cluster.database.url, redis_url=self.cluster.redis_url)
        return Server(f"http://127.0.0.1:{self.port}", self.cluster.database, ApiConfig(settings))

    def paced_answers(self, count: int) -> list[PacedAnswer]:
        """Let the next requests to the model have answers whose words the test releases."""
        answers = [PacedAnswer(*WORDS) for _ in range(count)]
        self.vendor.script[:] = answers
        return answers

    def start(self, program: str) -> None:
        """Start a program; wait until the API answers if it is that."""
        arguments = [str(self.port)] if program == "api" else []
        accounts = str(self.cluster.home / "accounts.toml")
        self.running[program] = self.cluster.start(
            program, *arguments, **SHORT_LEASES, EASEL_MODELS_FILE=accounts, EASEL_SECRET_KEY=SECRET, FAULT_TRUST="1"
        )
        if program == "api":
            self.cluster.wait_for(self._answers, 60)

    def kill(self, program: str) -> None:
        self.cluster.kill(self.running[program])

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}/health").status_code < 500
        except httpx2.TransportError:
            return False


@pytest.fixture(scope="module")
def processes(
    services: EmbeddedServers, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Processes]:
    home: Path = tmp_path_factory.mktemp("processes")
    redis_url = test_services.emptied_redis(services.redis_url, "faults")
    with (
        vendor_of() as vendor,
        test_services.fresh_database(services.database_url, template) as database_url,
        cluster_on(database_url, redis_url, home) as cluster,
    ):
        (home / "accounts.toml").write_text(
            f'[[account]]\nfactory = "OpenAI-API-Compatible"\nbase_url = "http://127.0.0.1:{vendor.port}/v1"\n'
            f'api_key = "{KEY}"\n[account.models.m]\nis_tools = true\n'
        )
        found = Processes(cluster, vendor, free_port())
        for program in ("sweeper", "scheduler", "worker", "api"):
            found.start(program)
        yield found


@pytest.fixture
def client(processes: Processes) -> Iterator[Client]:
    made = processes.server.client()
    yield made
    made.http.close()


@pytest.fixture
def reader(reader_of: ReaderOf, processes: Processes, client: Client) -> Reader:
    """A page that is signed in and notes what `data-live` was."""
    reader = reader_of(processes.server)
    reader.sign_in(client)
    reader.page.add_init_script(WATCH_MODES)
    return reader


def start_slow_run(client: Client) -> str:
    return client.start(client.agent(SLOW), "Write.")["run_id"]


def shown_text(reader: Reader) -> str:
    return " ".join(reader.page.locator("[data-testid=stream] [data-text]").inner_text().split())


def test_run_whose_worker_was_killed_ends_and_looks_the_same_after_a_reload(
    reader: Reader, processes: Processes, client: Client
):  # T041, T044
    first, second = processes.paced_answers(2)
    run_id = start_slow_run(client)
    first.release(2)
    eventually(lambda: client.run(run_id)["answer"], lambda answer: "One two" in (answer or ""), seconds=60)
    reader.visit(f"/runs/{run_id}?view=talk")
    wait_for_text(reader, "One two")

    processes.kill("worker")
    processes.start("worker")
    second.release(10)
    wait_for_status(reader, "succeeded")
    wait_for_mode(reader, "off")
    first.release(10)

    assert shown_text(reader) == "One two three four."
    live = snapshot(reader)
    reader.page.reload()
    reader.page.locator('[data-testid=page][data-ready="1"]').wait_for()
    assert snapshot(reader) == live
    writer = next(step for step in client.run(run_id)["activations"] if step["node_id"] == "LLM:Writer")
    assert writer["attempt"] == 2


def test_page_goes_on_by_itself_after_the_api_was_killed_and_started_again(
    reader: Reader, processes: Processes, client: Client
):  # T043
    (answer,) = processes.paced_answers(1)
    run_id = start_slow_run(client)
    reader.visit(f"/runs/{run_id}?view=talk")
    answer.release()
    wait_for_text(reader, "One")
    wait_for_mode(reader, "stream")

    processes.kill("api")
    wait_for_mode(reader, "away")
    answer.release()  # the model goes on writing
    assert shown_text(reader) == "One"
    processes.start("api")
    wait_for_mode(reader, "stream")
    wait_for_text(reader, "One two")
    answer.release(10)

    wait_for_status(reader, "succeeded")
    eventually(lambda: shown_text(reader), lambda text: text == "One two three four.", seconds=30)
    modes = reader.page.evaluate("modes")
    assert modes[modes.index("away", 1) :][:2] == ["away", "stream"], modes
    reader.allow_refusals()
