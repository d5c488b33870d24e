"""A RabbitMQ server for tests, with its own ports, node name, data and epmd. It needs Debian's `rabbitmq-server`."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import amqp

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
START_TIMEOUT = 240.0  # seconds; Erlang starts slowly on a busy machine


@dataclass(frozen=True)
class Rabbit:
    """A running server."""

    port: int
    environment: dict[str, str]

    def vhost(self, *, default_queue_type: str | None = None) -> str:
        """Create a virtual host; return its URL as a broker."""
        name = f"v{uuid4().hex[:8]}"
        more = ("--default-queue-type", default_queue_type) if default_queue_type else ()
        self.control("add_vhost", name, *more)
        self.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{name}"

    def queues(self, broker_url: str) -> dict[str, str]:
        """Return the types of the queues of a virtual host, by name."""
        output = self.control(
            "-q", "list_queues", "-p", broker_url.rpartition("/")[2], "name", "type", "--no-table-headers"
        )
        return dict(line.split("\t") for line in output.splitlines() if "\t" in line)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl; return its output."""
        process = subprocess.run(
            [PROGRAMS / "rabbitmqctl", *arguments], env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert process.returncode == 0, process.stderr or process.stdout
        return process.stdout


def is_installed() -> bool:
    """Whether the server is installed."""
    return (PROGRAMS / "rabbitmq-server").exists() and shutil.which("epmd") is not None


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(home: Path) -> Iterator[Rabbit]:
    """Run a server in this folder until the block ends."""
    port, distribution, epmd_port = free_port(), free_port(), free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"easel{uuid4().hex[:8]}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
    }
    (home / "plugins").write_text("[].")
    with (home / "out").open("wb") as out:
        server = subprocess.Popen(
            [PROGRAMS / "rabbitmq-server"], env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _wait_for(port, server, home / "out")
        yield Rabbit(port, environment)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(30)
        subprocess.run(["epmd", "-port", str(epmd_port), "-kill"], env=environment, capture_output=True, timeout=30)


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        assert server.poll() is None, log.read_text()
        try:
            with amqp.Connection(f"127.0.0.1:{port}", "guest", "guest", connect_timeout=5):
                return
        except (OSError, amqp.AMQPError):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
