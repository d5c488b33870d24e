"""The servers of the tests leave nothing behind, however a run of pytest ends."""

import fcntl
from pathlib import Path

from tests import services as test_services


def test_what_a_killed_run_left_in_memory_is_removed_and_what_another_one_uses_is_not(tmp_path: Path):
    left, used, strange = (tmp_path / name for name in ("easel-tests-left", "easel-tests-used", "something"))
    for folder in (left, used, strange):
        folder.mkdir()
        (folder / "in-use").touch()

    with (used / "in-use").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        test_services.clear_abandoned(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["easel-tests-used", "something"]


def test_the_folder_of_a_run_is_in_use_until_its_end():
    with test_services.shared_folder() as folder:
        test_services.clear_abandoned(folder.parent)
        was_there = folder.is_dir()

    assert was_there
    assert not folder.exists()
