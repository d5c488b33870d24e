"""A RabbitMQ server of a test's own: its own ports, node name, data and epmd. It needs Debian's `rabbitmq-server`."""

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

FOLDER = Path("/usr/lib/rabbitmq/bin")
UP_WITHIN = 240.0  # seconds; Erlang starts slowly on a busy machine


@dataclass(frozen=True)
class Rabbit:
    """A running server."""

    port: int
    environment: dict[str, str]

    def vhost(self, *, default_queue_type: str | None = None) -> str:
        """A new virtual host; the URL of it as a broker."""
        name = f"v{uuid4().hex[:8]}"
        more = ("--default-queue-type", default_queue_type) if default_queue_type else ()
        self.control("add_vhost", name, *more)
        self.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{name}"

    def queues(self, broker_url: str) -> dict[str, str]:
        """The types of the queues of a virtual host, by name."""
        said = self.control(
            "-q", "list_queues", "-p", broker_url.rpartition("/")[2], "name", "type", "--no-table-headers"
        )
        return dict(line.split("\t") for line in said.splitlines() if "\t" in line)

    def control(self, *arguments: str) -> str:
        """What rabbitmqctl says."""
        done = subprocess.run(
            [FOLDER / "rabbitmqctl", *arguments], env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout


def is_there() -> bool:
    """Whether a server can be started here."""
    return (FOLDER / "rabbitmq-server").exists() and shutil.which("epmd") is not None


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def running(home: Path) -> Iterator[Rabbit]:
    """A server in this folder, until the block ends."""
    port, distribution, names = free_port(), free_port(), free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ERL_EPMD_PORT": str(names),
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
            [FOLDER / "rabbitmq-server"], env=environment, stdout=out, stderr=out, start_new_session=True
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
        subprocess.run(["epmd", "-port", str(names), "-kill"], env=environment, capture_output=True, timeout=30)


def _wait_for(port: int, server: "subprocess.Popen[bytes]", said: Path) -> None:
    deadline = time.monotonic() + UP_WITHIN
    while True:
        assert server.poll() is None, said.read_text()
        try:
            with amqp.Connection(f"127.0.0.1:{port}", "guest", "guest", connect_timeout=5):
                return
        except (OSError, amqp.AMQPError):
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.2)
