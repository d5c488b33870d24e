"""How commands that share an EASEL_HOME find each other."""

from pathlib import Path

import pytest

from canvas.errors import Conflict
from cli.shell import home

UP = home.Up("http://127.0.0.1:1", 42, "easel_secret", "postgresql://u:p@h/d", "redis://:p@h/0")


def test_a_running_up_is_found_once_it_is_ready(tmp_path: Path):
    with home.lock_home(tmp_path) as announcement:
        assert home.find_running_up(tmp_path) is None

        announcement.write(UP)

        assert home.find_running_up(tmp_path) == UP
    assert home.find_running_up(tmp_path) is None


def test_state_file_of_a_killed_up_is_ignored(tmp_path: Path):
    (tmp_path / home.STATE_FILE).write_text(
        '{"url": "http://x", "pid": 1, "token": "t", "database_url": "d", "redis_url": "r"}'
    )

    assert home.find_running_up(tmp_path) is None


def test_second_up_of_a_home_is_refused(tmp_path: Path):
    with home.lock_home(tmp_path) as announcement:
        announcement.write(UP)

        with pytest.raises(Conflict, match=r"http://127\.0\.0\.1:1 \(process 42\)"), home.lock_home(tmp_path):
            pass


def test_secrets_are_readable_only_by_their_user_and_not_in_a_repr(tmp_path: Path):
    home.write_token(tmp_path, "easel_secret")
    with home.lock_home(tmp_path) as announcement:
        announcement.write(UP)
        modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in (home.STATE_FILE, home.TOKEN_FILE)}

    assert modes == {home.STATE_FILE: 0o600, home.TOKEN_FILE: 0o600}
    assert "secret" not in repr(UP)
    assert ":p@" not in repr(UP)


def test_token_is_stored_in_the_home(tmp_path: Path):
    assert home.read_token(tmp_path) is None

    home.write_token(tmp_path, "one")
    home.write_token(tmp_path, "two")

    assert home.read_token(tmp_path) == "two"
