"""Addresses for which tries are counted, and the build of the pages."""

from pathlib import Path

import pytest

from api.pages import page_files
from api.pages.page_files import find_build, pages_are_served
from api.viewer.sign_ins import site_of


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("unix", "unix"),
        ("", ""),
    ],
)
def test_tries_are_counted_by_address_or_by_network_of_ipv6(address: str, site: str) -> None:
    assert site_of(address) == site


def test_build_is_named_after_its_files(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for folder, script in ((one, "a"), (same, "a"), (other, "b")):
        (folder / "ui").mkdir(parents=True)
        (folder / "index.html").write_text("<!doctype html>")
        (folder / "ui" / "start.js").write_text(script)

    assert find_build(missing) is None
    assert find_build(one) == find_build(same) != find_build(other)
    assert len(find_build(one) or "") == 12


def test_pages_are_served_if_they_are_built_and_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for build, is_on, expected in (("0123456789ab", True, True), ("0123456789ab", False, False), (None, True, False)):
        monkeypatch.setattr(page_files, "find_build", lambda build=build: build)

        assert pages_are_served(is_on=is_on) is expected
