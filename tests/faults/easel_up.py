"""`easel up` as a process, and access to its child processes. Its results are read over HTTP only."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.faults.outside import ExternalServices

ROOT = Path(__file__).parent.parent.parent
SERVER_VARIABLES = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "EASEL_DATABASE_URL", "EASEL_REDIS_URL")
PROCESS_NAMES = {  # by what is in the command line
    "cli\0api": "api",
    "worker.tasks": "worker",
    "scheduler.tasks": "scheduler",
    "scheduler.sweep": "sweeper",
    "valkey-server": "valkey",
    "redis-server": "valkey",
    "postgres": "postgres",
}
PROCESSES = ("api", "worker", "scheduler", "sweeper")
SERVERS = ("valkey", "postgres")


@dataclass
class EaselUp:
    """A running `easel up`, or one that is about to run again."""

    folder: Path
    environment: Mapping[str, str]
    url: str = ""
    token: str = ""
    process: "subprocess.Popen[str] | None" = None
    _clients: list[httpx2.Client] = field(default_factory=list[httpx2.Client])

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def start(self) -> None:
        """Start it, at its old address if it had one, and wait until it is ready."""
        port = self.url.rpartition(":")[2] or "0"
        with (self.folder / "up.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cli", "up", "--port", port], env=self.environment, cwd=self.folder, text=True,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        ready = re.match(r"ready (http://\S+) token=(\S+)", line)
        assert ready is not None, f"{line}\n{self.log_tail()}"
        self.url, self.token = ready[1], ready[2]

    def client(self) -> httpx2.Client:
        """Create an HTTP client, one for each thread."""
        headers = {"Authorization": f"Bearer {self.token}", "X-Http-Status": "strict"}
        client = httpx2.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=10)
        self._clients.append(client)
        return client

    def children(self) -> dict[str, int]:
        """The ids of its child processes by name."""
        assert self.process is not None
        children: dict[str, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid:
                    argv = stat.with_name("cmdline").read_bytes().decode(errors="replace")
                    name = next((process_name for words, process_name in PROCESS_NAMES.items() if words in argv), None)
                    if name is not None:
                        children[name] = int(stat.parent.name)
        return children

    def kill(self, name: str) -> bool:
        """Kill one of its processes; return False if it does not exist."""
        pid = self.children().get(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid is not None

    def kill_all(self) -> None:
        """Kill `easel up` itself; the kernel ends the others."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def redis_url(self) -> str:
        """The URL of its Redis, from the state file in its home."""
        return json.loads((self.home / "up.json").read_text())["redis_url"]

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of the logs of it and its processes."""
        logs = sorted([self.folder / "up.log", *self.home.glob("logs/*.log")])
        return "\n".join(f"== {it.name}\n" + "\n".join(it.read_text().splitlines()[-lines:]) for it in logs)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.kill_all()


@contextmanager
def easel_up(external: ExternalServices, **environment: str) -> Generator[EaselUp]:
    """Run `easel up` with its own home and servers until the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="easel-faults-"))
    folder.chmod(0o711)
    variables = {name: value for name, value in os.environ.items() if name not in SERVER_VARIABLES}
    variables |= {
        "EASEL_HOME": str(folder / "home"),
        "EASEL_MODELS_FILE": str(external.write_models_file(folder)),
        "EASEL_SSRF_ALLOW": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    up = EaselUp(folder, variables)
    try:
        up.start()
        yield up
    finally:
        up.close()
        for _ in range(20):  # a server that was killed may still be writing
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)


def data_of(reply: httpx2.Response) -> Any:
    """Return the data of a reply, without RAGFlow's envelope if there is one."""
    body = reply.json()
    return body["data"] if isinstance(body, dict) and "data" in body and "code" in body else body
