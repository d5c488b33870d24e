"""Easel as users install it, without Node: the wheel has the pages with their licences, and `easel up` serves them."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SERVERS, TIMEOUT, new_home
from tests.pages.test_build import VIEWER, files_of
from tests.pages.waiting import TIMEOUT_MS

ROOT = VIEWER.parent
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
RULE = "-" * 72
ENTRY = re.compile(rf"^(?P<name>\S+) (?P<version>\d\S*) \((?P<licence>[^)]+)\)\n{RULE}\n", re.MULTILINE)
SHORTEST_LICENCE = 500  # characters

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [*PIP, "wheel", "--no-deps", "-w", str(folder), str(ROOT)], capture_output=True, text=True, timeout=200
    )
    if built.returncode and "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("hatchling, which builds the wheel, cannot be fetched from the package index")
    assert built.returncode == 0, built.stderr
    return next(folder.glob("easel-*.whl"))


def test_wheel_has_the_built_pages_and_nothing_else_of_the_viewer(wheel: Path):  # T110
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if name.startswith("viewer/") and not name.endswith("/")}
        different = [name for name in names if packed.read(name) != (ROOT / name).read_bytes()]

    assert names == {f"viewer/dist/{name}" for name in files_of(VIEWER / "dist")}
    assert different == []


def test_wheel_names_each_bundled_package_with_the_text_of_a_licence_that_is_not_gpl(wheel: Path):  # T110
    with zipfile.ZipFile(wheel) as packed:
        text = packed.read("viewer/dist/licenses.txt").decode()
    heads = list(ENTRY.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    texts = {head["name"]: text[head.end() : end] for head, end in zip(heads, ends, strict=True)}

    assert heads[0].start() == 0
    assert len(heads) == text.count(f"\n{RULE}\n") > 50, "every entry has a name, a version and a licence"
    assert [name for name, licence in texts.items() if len(licence.strip()) < SHORTEST_LICENCE] == []
    assert [head["name"] for head in heads if re.search(r"\b[AL]?GPL", head["licence"])] == []
    assert [name for name, licence in texts.items() if "GNU" in licence and "GENERAL PUBLIC" in licence.upper()] == []


@contextmanager
def without_node(installed: Path) -> Iterator[dict[str, str]]:
    """The environment of a machine that has the installed files and no program on PATH, and a home."""
    with new_home() as home:
        home.parent.mkdir(exist_ok=True)
        programs = home.parent / "programs"
        programs.mkdir()
        variables = {name: value for name, value in os.environ.items() if name not in (*SERVERS, "VIRTUAL_ENV")}
        yield {**variables, "EASEL_HOME": str(home), "PATH": str(programs), "PYTHONPATH": str(installed)}


@pytest.mark.parametrize("source", ["wheel", "clone"])
def test_pages_are_served_without_node(source: str, wheel: Path, tmp_path: Path, browser: Any):  # T001
    installed = tmp_path / "installed"
    if source == "wheel":
        subprocess.run([*PIP, "install", "--no-deps", "--target", str(installed), str(wheel)], check=True)
    else:
        copy_committed_files(installed)
    with without_node(installed) as environment:
        folder = Path(environment["EASEL_HOME"]).parent
        assert [name for name in ("node", "npm") if shutil.which(name, path=environment["PATH"])] == []
        module = run_python(environment, folder, "import api.pages; print(api.pages.__file__)")
        assert module.startswith(f"{installed}{os.sep}"), "the installed files are the ones that run"
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", "up", "--port", "0"], env=environment, cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            ready = re.match(r"ready (\S+) token=", process.stdout.readline())
            assert ready, process.stderr.read()
            lines = iter(process.stderr.readline, "")
            signing_in = next(line.split()[1] for line in lines if line.startswith("viewer: "))
            assert shown_pages(browser, f"{ready[1]}/", signing_in) == ["login", "runs"]
        finally:
            process.terminate()
            process.wait(TIMEOUT)


def shown_pages(browser: Any, *addresses: str) -> list[str]:
    """Open addresses one after the other; return the page that each shows when it is ready."""
    shown: list[str] = []
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT_MS)
    for address in addresses:
        page = context.new_page()
        page.goto(address)
        page.locator('[data-testid=page][data-ready="1"]').wait_for()
        shown.append(page.get_by_test_id("page").get_attribute("data-page"))
    context.close()
    return shown


def copy_committed_files(folder: Path) -> None:
    """Copy what a clone has: the files that git knows."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the sources are not a git repository")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def run_python(environment: dict[str, str], folder: Path, program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout
