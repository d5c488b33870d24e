"""TLS to Redis and to the broker: both verify the certificate unless the URL disables it."""

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis
from kombu.exceptions import OperationalError

from cli.server import checks
from cli.server.checks import Level
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.redis_bus import Bus
from tests.certificates import Certificates, create_signed

STARTUP_DEADLINE_S = 60.0
PASSWORD = "a-password-of-the-test"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return create_signed(tmp_path_factory.mktemp("certificates"), "localhost")


@pytest.fixture(scope="module")
def port(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the port of a Redis with TLS only, whose certificate is for `localhost`."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("needs Debian's redis-server, which is built with TLS")
    with running_redis(Path(program), certificates, tmp_path_factory.mktemp("redis")) as chosen:
        yield chosen


def test_broker_with_unknown_authority_is_refused(port: int) -> None:
    app = make_app(rediss(port))

    with app.connection_for_write() as connection, pytest.raises(OperationalError, match="CERTIFICATE_VERIFY_FAILED"):
        connection.ensure_connection(max_retries=1, timeout=5)


def test_broker_whose_authority_the_url_names_accepts_messages(port: int, certificates: Certificates) -> None:
    app = make_app(rediss(port, f"ssl_ca_certs={certificates.authority}"))

    app.send_task("worker.execute", ("run", "activation"))

    with app.connection_for_read() as connection, connection.SimpleQueue("nodes") as queue:
        assert queue.get(timeout=30).headers["task"] == "worker.execute"


def test_broker_certificate_of_another_host_is_refused(port: int, certificates: Certificates) -> None:
    app = make_app(rediss(port, f"ssl_ca_certs={certificates.authority}", host="127.0.0.1"))

    with app.connection_for_write() as connection, pytest.raises(OperationalError, match="CERTIFICATE_VERIFY_FAILED"):
        connection.ensure_connection(max_retries=1, timeout=5)


def test_bus_with_unknown_authority_is_refused(port: int) -> None:
    bus = Bus(rediss(port))

    with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        bus.ping()


def test_doctor_refuses_an_unknown_authority_for_redis_and_for_the_broker(port: int) -> None:
    findings = checks.redis_server(rediss(port)), checks.broker(make_app(rediss(port)))

    for finding in findings:
        assert finding.level is Level.FAIL
        assert "CERTIFICATE_VERIFY_FAILED" in finding.found
        assert "ssl_ca_certs" in finding.advice


def test_doctor_warns_where_the_url_switches_verification_off(port: int) -> None:
    url = rediss(port, "ssl_cert_reqs=none")

    findings = checks.redis_server(url), checks.broker(make_app(url))

    for finding in findings:
        assert finding.level is Level.WARN
        assert "not verified" in finding.found


def test_doctor_accepts_a_redis_whose_authority_the_url_names(port: int, certificates: Certificates) -> None:
    url = rediss(port, f"ssl_ca_certs={certificates.authority}")

    assert checks.redis_server(url).level is Level.OK
    assert checks.broker(make_app(url)).level is Level.OK


@pytest.mark.parametrize(
    ("host", "options", "is_accepted"),
    [
        ("localhost", "ssl_ca_certs={ca}", True),
        ("127.0.0.1", "ssl_ca_certs={ca}", False),  # the certificate is another host's
        ("127.0.0.1", "ssl_ca_certs={ca}&ssl_check_hostname=false", True),
        ("localhost", "", False),  # its authority is unknown
        ("localhost", "ssl_cert_reqs=none", True),
    ],
)
def test_rabbitmq_certificate_is_verified_as_the_url_says(
    certificates: Certificates, host: str, options: str, is_accepted: bool
) -> None:
    with tls_server(certificates) as (tls_port, handshakes):
        query = options.format(ca=certificates.authority)
        url = f"amqps://guest:guest@{host}:{tls_port}//?{query}"

        for _ in range(2):  # at the second time kombu has rewritten the host name of its connection
            with make_app(url).connection_for_write() as connection, suppress(OSError, OperationalError):
                connection.ensure_connection(max_retries=1, timeout=5)

        assert wait_for(lambda: len(handshakes) >= 2)
        assert set(handshakes) == {is_accepted}


def rediss(port: int, options: str = "", host: str = "localhost") -> str:
    return f"rediss://:{PASSWORD}@{host}:{port}/0?{options}".rstrip("?")


@contextmanager
def running_redis(program: Path, certificates: Certificates, folder: Path) -> Generator[int]:
    port = free_port()
    arguments = [
        "--port", "0", "--tls-port", str(port), "--tls-cert-file", str(certificates.certificate),
        "--tls-key-file", str(certificates.key), "--tls-ca-cert-file", str(certificates.authority),
        "--tls-auth-clients", "no", "--save", "", "--bind", "127.0.0.1", "::1", "--requirepass", PASSWORD,
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, *arguments], cwd=folder, stdout=log, stderr=log)
    try:
        with redis.Redis.from_url(rediss(port, f"ssl_ca_certs={certificates.authority}")) as client:
            assert wait_for(lambda: responds(client)), (folder / "log").read_text()
        yield port
    finally:
        server.terminate()
        server.wait(30)


def responds(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@contextmanager
def tls_server(certificates: Certificates) -> Generator[tuple[int, list[bool]]]:
    """Run a server that closes each connection after its handshake; yield its port and the handshake results."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # in which a client's refusal fails the handshake itself
    context.load_cert_chain(certificates.certificate, certificates.key)
    handshakes: list[bool] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                context.wrap_socket(connection, server_side=True).close()
                handshakes.append(True)
            except OSError:
                handshakes.append(False)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1], handshakes
        listener.shutdown(socket.SHUT_RDWR)


def wait_for(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + STARTUP_DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
