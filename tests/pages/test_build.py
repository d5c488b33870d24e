"""The committed build of the web pages is that of the sources."""

import filecmp
import re
import shutil
import subprocess
from pathlib import Path

import pytest

VIEWER = Path(__file__).resolve().parents[2] / "viewer"
SOURCES = ("src", "build", "public", "index.html", "package.json", "tsconfig.json", "vite.config.ts")


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_build_from_the_sources_is_the_committed_one(tmp_path: Path):  # T111
    if shutil.which("node") is None or not (VIEWER / "node_modules").exists():
        pytest.skip("there is no Node, or npm ci was not run in viewer/")
    for name in SOURCES:
        copy = shutil.copytree if (VIEWER / name).is_dir() else shutil.copy
        copy(VIEWER / name, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(VIEWER / "node_modules")

    subprocess.run(["npm", "run", "build"], cwd=tmp_path, check=True, capture_output=True, timeout=100)

    names = files_of(VIEWER / "dist")
    assert files_of(tmp_path / "dist") == names, "run `make viewer` and commit viewer/dist"
    different = [name for name in names if not filecmp.cmp(tmp_path / "dist" / name, VIEWER / "dist" / name, False)]
    assert different == [], "run `make viewer` and commit viewer/dist"


def test_licences_of_all_bundled_packages_are_listed():  # T110, T111
    text = (VIEWER / "dist" / "licenses.txt").read_text(encoding="utf-8")
    entries = dict(re.findall(r"^(\S+) \d\S* \(([^)]+)\)\n-{72}$", text, re.MULTILINE))

    assert {"react", "react-dom", "@xyflow/react", "@tanstack/react-router", "react-markdown", "tailwindcss"} <= set(
        entries
    )
    assert not [name for name, licence in entries.items() if re.search(r"\bA?GPL", licence)]


def test_build_names_no_other_host():  # T111
    """What is loaded at run time is checked by the tests in a browser; here, that no address is in the document."""
    document = (VIEWER / "dist" / "index.html").read_text(encoding="utf-8")
    styles = "".join(path.read_text(encoding="utf-8") for path in (VIEWER / "dist" / "assets").glob("*.css"))

    assert "//" not in re.sub(r"<!--.*?-->", "", document)
    assert not re.search(r"url\(\s*[\"']?(https?:)?//|@import", styles)
