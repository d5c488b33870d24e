"""`easel up` as a process of its own, and a hand on those that belong to it. What it does is read over HTTP only."""

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

from tests.faults.outside import Outside

ROOT = Path(__file__).parent.parent.parent
NAMED = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "EASEL_DATABASE_URL", "EASEL_REDIS_URL")
OURS = {  # by what is in the command line
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
        """Start it, at its old address if it had one, and wait until it says that it is ready."""
        port = self.url.rpartition(":")[2] or "0"
        with (self.folder / "up.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cli", "up", "--port", port], env=self.environment, cwd=self.folder, text=True,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        ready = re.match(r"ready (http://\S+) token=(\S+)", line)
        assert ready is not None, f"{line}\n{self.told()}"
        self.url, self.token = ready[1], ready[2]

    def client(self) -> httpx2.Client:
        """A client of its own for each thread that asks."""
        headers = {"Authorization": f"Bearer {self.token}", "X-Http-Status": "strict"}
        made = httpx2.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=10)
        self._clients.append(made)
        return made

    def children(self) -> dict[str, int]:
        """Its processes by name, as the kernel knows them."""
        assert self.process is not None
        found: dict[str, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid:
                    argv = stat.with_name("cmdline").read_bytes().decode(errors="replace")
                    name = next((ours for words, ours in OURS.items() if words in argv), None)
                    if name is not None:
                        found[name] = int(stat.parent.name)
        return found

    def kill(self, name: str) -> bool:
        """Kill one of its processes; False if that is not there."""
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
        """Where its Redis is, as it tells other commands of its home."""
        return json.loads((self.home / "up.json").read_text())["redis_url"]

    def told(self, lines: int = 25) -> str:
        """The ends of what it and its processes have logged."""
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
def easel_up(world: Outside, **environment: str) -> Generator[EaselUp]:
    """`easel up` in a home of its own on servers of its own; all is gone when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="easel-faults-"))
    folder.chmod(0o711)
    given = {name: value for name, value in os.environ.items() if name not in NAMED}
    given |= {
        "EASEL_HOME": str(folder / "home"),
        "EASEL_MODELS_FILE": str(world.accounts(folder)),
        "EASEL_SSRF_ALLOW": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    up = EaselUp(folder, given)
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
    """What a reply says, out of RAGFlow's envelope where there is one."""
    told = reply.json()
    return told["data"] if isinstance(told, dict) and "data" in told and "code" in told else told
