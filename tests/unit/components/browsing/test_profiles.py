import asyncio
import json
from pathlib import Path

from components.browsing import profiles


def test_a_profile_is_the_same_folder_each_time_and_of_nobody_else(tmp_path: Path):
    async def twice() -> None:
        async with profiles.lent(tmp_path / "home", "n", 0) as first:
            assert first is not None
            (first / "cookie").write_text("yes")
        async with profiles.lent(tmp_path / "home", "n", 0) as second:
            assert second == first
            assert (second / "cookie").read_text() == "yes"
            assert second.stat().st_mode & 0o077 == 0

    asyncio.run(twice())


def test_a_profile_in_use_is_lent_to_nobody_else_until_it_is_given_back(tmp_path: Path):
    async def together() -> None:
        async with (
            profiles.lent(tmp_path, "n", 0) as first,
            profiles.lent(tmp_path, "n", 0) as second,
            profiles.lent(tmp_path, "other", 0) as other,
        ):
            assert first is not None
            assert second is None
            assert other is not None
        async with profiles.lent(tmp_path, "n", 0) as third:
            assert third == first

    asyncio.run(together())


def test_one_who_waits_gets_the_profile_when_it_is_given_back(tmp_path: Path):
    async def in_turn() -> Path | None:
        async with profiles.lent(tmp_path, "n", 0):
            waiting = asyncio.create_task(borrowed())
            await asyncio.sleep(0)
        return await waiting

    async def borrowed() -> Path | None:
        async with profiles.lent(tmp_path, "n", 10) as profile:
            return profile

    assert asyncio.run(in_turn()) == tmp_path / "n"


def test_marks_of_a_browser_that_died_are_removed_and_settings_are_kept(tmp_path: Path):
    profile = profiles.prepared(tmp_path / "p")
    (profile / "SingletonLock").symlink_to("elsewhere-123")
    preferences = profile / "Default" / "Preferences"
    assert json.loads(preferences.read_text())["plugins"] == {"always_open_pdf_externally": True}
    preferences.write_text("{}")

    profiles.prepared(profile)

    assert not (profile / "SingletonLock").is_symlink()
    assert preferences.read_text() == "{}"
