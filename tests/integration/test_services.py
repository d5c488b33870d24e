"""The folders of the test servers are removed, also after a killed run of pytest."""

import fcntl
from pathlib import Path

from tests import services as test_services


def test_folder_of_a_killed_test_run_is_removed_and_one_in_use_is_not(tmp_path: Path):
    abandoned, used, unrelated = (tmp_path / name for name in ("easel-tests-left", "easel-tests-used", "something"))
    for folder in (abandoned, used, unrelated):
        folder.mkdir()
        (folder / "in-use").touch()

    with (used / "in-use").open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        test_services.clear_abandoned(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["easel-tests-used", "something"]


def test_folder_of_a_test_run_exists_until_its_end():
    with test_services.shared_folder() as folder:
        test_services.clear_abandoned(folder.parent)
        was_there = folder.is_dir()

    assert was_there
    assert not folder.exists()
