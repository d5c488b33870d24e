import asyncio
import json
from pathlib import Path

from components.browsing.session import lock_profile, prepare_profile


def test_a_named_profile_is_the_same_private_folder_each_time(tmp_path: Path):
    async def twice() -> None:
        async with lock_profile(tmp_path / "home", "n", 0) as first:
            assert first is not None
            (first / "cookie").write_text("yes")
        async with lock_profile(tmp_path / "home", "n", 0) as second:
            assert second == first
            assert (second / "cookie").read_text() == "yes"
            assert second.stat().st_mode & 0o077 == 0

    asyncio.run(twice())


def test_a_profile_in_use_is_not_given_to_another_browser_until_it_is_released(tmp_path: Path):
    async def together() -> None:
        async with (
            lock_profile(tmp_path, "n", 0) as first,
            lock_profile(tmp_path, "n", 0) as second,
            lock_profile(tmp_path, "other", 0) as other,
        ):
            assert first is not None
            assert second is None
            assert other is not None
        async with lock_profile(tmp_path, "n", 0) as third:
            assert third == first

    asyncio.run(together())


def test_a_waiting_browser_gets_the_profile_when_it_is_released(tmp_path: Path):
    async def release_while_waiting() -> Path | None:
        async with lock_profile(tmp_path, "n", 0):
            waiting = asyncio.create_task(lock_and_return())
            await asyncio.sleep(0)
        return await waiting

    async def lock_and_return() -> Path | None:
        async with lock_profile(tmp_path, "n", 10) as profile:
            return profile

    assert asyncio.run(release_while_waiting()) == tmp_path / "n"


def test_lock_files_of_a_killed_browser_are_removed_and_its_preferences_remain(tmp_path: Path):
    profile = prepare_profile(tmp_path / "p")
    (profile / "SingletonLock").symlink_to("elsewhere-123")
    preferences = profile / "Default" / "Preferences"
    assert json.loads(preferences.read_text())["plugins"] == {"always_open_pdf_externally": True}
    preferences.write_text("{}")

    prepare_profile(profile)

    assert not (profile / "SingletonLock").is_symlink()
    assert preferences.read_text() == "{}"
