"""Two releases at once, as in a rolling upgrade: processes of the previous code beside those of this code.

The previous code is that before the newest migration, taken from the history; EASEL_TEST_PREVIOUS names another commit.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from cli.server.up import free_port
from embedded import EmbeddedServers
from store.db.database import Database
from store.tenants import tenants
from tests import services as test_services
from tests.integration.api.conftest import NO_TLS
from tests.integration.api.talking import Client, eventually

ROOT = Path(__file__).resolve().parents[2]
MIGRATIONS = ROOT / "migrations" / "versions"
QUERY = "My invoice is wrong: charged twice; no refund yet. Please help."
BESIDES = {
    "worker": ["celery", "-A", "worker.tasks", "worker", "-Q", "nodes", "-P", "threads", "-c", "4"],
    "scheduler": ["celery", "-A", "scheduler.tasks", "worker", "-Q", "runs", "-P", "threads", "-c", "2"],
    "sweeper": ["scheduler.sweep"],
}

pytestmark = pytest.mark.long


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the previous code."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the sources are not a git repository, so there is no previous code")
    commit = os.environ.get("EASEL_TEST_PREVIOUS")
    if commit is None:
        newest = max(MIGRATIONS.glob("[0-9]*.py"))
        added = git("log", "--first-parent", "-m", "--diff-filter=A", "--format=%H", "--", str(newest))
        known = subprocess.run(["git", "rev-parse", "--verify", "-q", f"{added}^"], cwd=ROOT, capture_output=True)
        if not added or known.returncode:
            pytest.skip(f"the history of this clone does not reach back to before {newest.name}")
        commit = f"{added}^"
    folder = tmp_path_factory.mktemp("previous")
    archive = folder / "previous.tar"
    git("archive", "-o", str(archive), commit)
    shutil.unpack_archive(archive, folder, filter="data")
    return folder


@contextmanager
def deployment(api: Path, others: Path, database_url: str, redis_url: str, home: Path) -> Iterator[str]:
    """Run an API of one code, and a worker, a scheduler and a sweeper of another; yield the address of the API."""
    home.mkdir()
    port = free_port("127.0.0.1", 0)
    programs = {"api": ["cli", "api", "--port", str(port)], **BESIDES}
    variables = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "EASEL_HOME": str(home),
        "EASEL_API_POOL": "4",
        "EASEL_SECRET_KEY": "a secret that is long",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EASEL_", "CELERY_"))}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name, program in programs.items():
            code = api if name == "api" else others
            with (home / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", *program], cwd=home, env={**inherited, **variables, "PYTHONPATH": str(code)},
                    stdout=log, stderr=subprocess.STDOUT,
                )  # fmt: skip
            processes.append(process)
        yield f"http://127.0.0.1:{port}"
        ended = [name for name, process in zip(programs, processes, strict=True) if process.poll() is not None]
        assert ended == [], {name: (home / f"{name}.log").read_text() for name in ended}
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


def client_of(database: Database, url: str) -> Client:
    """Wait until an API answers; return a client of it."""
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, "two releases")
        _, token = tenants.create_token(tx, tenant_id, "test", "api")
    headers = {"Authorization": f"Bearer {token}"}
    http = httpx2.Client(base_url=url, headers=headers, timeout=30, verify=NO_TLS)
    eventually(lambda: _answers(http), bool)
    return Client(http, tenant_id, token)


def _answers(http: httpx2.Client) -> bool:
    try:
        return http.get("/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def run_example(client: Client) -> Sequence[tuple[str, str]]:
    """Run the support example twice, the second time as a stream; return node and status of each step of the first."""
    example = json.loads((ROOT / "examples" / "support_triage.json").read_text(encoding="utf-8"))
    agent = client.agent(example["dsl"], example["title"])
    run = client.wait_for(client.start(agent, QUERY)["run_id"], "succeeded", "failed")
    assert run["status"] == "succeeded", run
    assert client.stream(agent, QUERY)[-1].data == "[DONE]"
    return sorted((row["node_id"], row["status"]) for row in run["activations"])


def test_new_worker_with_old_api_and_the_reverse_run_the_example(
    previous: Path, services: EmbeddedServers, template: str, tmp_path: Path
):  # T144
    for code in (previous, ROOT):
        environment = {**os.environ, "PYTHONPATH": str(code)}
        command = [sys.executable, "-c", "import store.tables as found; print(found.__file__)"]
        found = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
        assert found.stdout.startswith(f"{code}{os.sep}"), "each process runs the code that it is meant to run"
    steps: dict[str, Sequence[tuple[str, str]]] = {}
    for name, (api, others) in {"old API": (previous, ROOT), "old worker": (ROOT, previous)}.items():
        redis_url = test_services.emptied_redis(services.redis_url)
        with (
            test_services.fresh_database(services.database_url, template) as database_url,
            closing(Database(database_url, pool_size=1)) as database,
            deployment(api, others, database_url, redis_url, tmp_path / name.replace(" ", "-")) as url,
        ):
            client = client_of(database, url)
            steps[name] = run_example(client)
            client.http.close()

    assert ("LLM:Reply", "done") in steps["old API"]
    assert steps["old API"] == steps["old worker"]
