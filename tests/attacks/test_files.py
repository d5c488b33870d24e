"""Hostile files: read in bounded time and memory, and without data of this machine in their text."""

import asyncio
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from time import process_time

import pytest

from api.requests.uploads import MAX_NAME_CHARS, file_name
from canvas.errors import NodeFailure
from components.browsing.files import fit_name, name_from_response
from components.text.extraction.file_kinds import FileUnreadable
from components.text.extraction.file_texts import MAX_CHARACTERS, UnparsedFile, file_text
from components.text.extraction.page_text import SMALL_PAGE
from components.tools.framework.xml_tree import parse
from providers.isolation import limited_process
from providers.isolation.limited_process import OWNER, ProcessLimits, ProcessPool
from tests.attacks.files import ENTITY, FILES, MIB, billion_laughs, evasive_html, external, many_members, quadratic

MAX_SECONDS = 15.0  # of computing
MAX_MEMORY = 1024 * MIB  # of address space, beyond that of the new process
LEAKS = ("root:", "/bin/", "haha" * 100)

NAMES = (
    "../../etc/passwd", "..\\..\\windows\\system32", "/etc/passwd", "C:\\boot.ini", "a/../../b",
    "....//....//etc/passwd",
    "..%2f..%2fetc%2fpasswd", "..", ".", "", " ", "...", "a\x00.png", "a\r\nX-Evil: 1", "a\x1b[2J", "\u202egnp.exe",
    "~/.ssh/id_rsa", "file:///etc/passwd", "\\\\host\\share", "a" * 5000, "é" * 5000, "\ud800", "con", "a;rm -rf /",
    "$(id)", "`id`", "-rf", "a|b", "\u2028a", "．．／etc", "\ufeff..",
)  # fmt: skip


def _read_in_child(name: str, answers: "Queue[tuple[str, float]]") -> None:
    """Read a file in a child process with limited memory; put its text and seconds into a queue."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    data = FILES[name]()
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_MEMORY + 6 * len(data), resource.RLIM_INFINITY))
    began = process_time()
    try:
        text = file_text(name, "", data)
    except NodeFailure as failure:
        text = f"refused: {failure.message}"
    except BaseException as error:  # the test reports it
        text = f"BROKEN: {type(error).__name__}: {error}"
    answers.put((text[: 2 * MAX_CHARACTERS], process_time() - began))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded and measured as Linux does it")
@pytest.mark.parametrize("name", FILES)
def test_hostile_file_is_read_in_bounded_time_and_memory(name: str):
    processes = get_context("fork")
    answers: Queue[tuple[str, float]] = processes.Queue()
    reader = processes.Process(target=_read_in_child, args=(name, answers))
    reader.start()
    try:
        text, seconds = answers.get(timeout=100)
    finally:
        reader.kill()
        reader.join()

    assert not text.startswith("BROKEN")
    assert seconds < MAX_SECONDS
    assert len(text) < MAX_CHARACTERS + 1000
    assert not any(leak in text for leak in LEAKS)


@pytest.fixture
def use_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], ProcessPool]]:
    """Return a function that makes files be read by a process pool with this limit, in seconds per file."""
    with ExitStack() as opened:

        def use(seconds: float) -> ProcessPool:
            pool = ProcessPool(2, ProcessLimits(seconds=seconds))
            opened.callback(pool.close)
            monkeypatch.setattr(limited_process, "process_pool", lambda: pool)
            return pool

        yield use


def test_page_that_evades_the_tag_check_is_stopped_by_the_time_limit(use_pool: Callable[[float], ProcessPool]):
    use_pool(1.0)
    file = UnparsedFile("evasive.html", "text/html", evasive_html(5 * MIB // 2))

    with pytest.raises(FileUnreadable, match=r'"evasive.html" \(HTML page\) cannot be read within its limits'):
        asyncio.run(file.text())
    with pytest.raises(FileUnreadable, match=r"longer than 1 s"):
        asyncio.run(file.full_text(MAX_CHARACTERS))
    with pytest.raises(FileUnreadable, match=r"longer than 1 s"):
        file.text_blocking()


def test_slow_files_of_one_owner_do_not_delay_the_files_of_another(use_pool: Callable[[float], ProcessPool]):
    pool = use_pool(60.0)

    async def read() -> tuple[str, int]:
        OWNER.set("attacker")
        hostile = UnparsedFile("evasive.html", "text/html", evasive_html(5 * MIB // 2))
        attack = [asyncio.create_task(hostile.text()) for _ in range(7)]
        OWNER.set("somebody else")
        page = b"<p>" + b"hello " * SMALL_PAGE
        while not pool.is_busy:
            await asyncio.sleep(0.001)
        text = await UnparsedFile("honest.html", "text/html", page).text()
        unfinished = sum(not each.done() for each in attack)
        for each in attack:
            each.cancel()
        await asyncio.gather(*attack, return_exceptions=True)
        return text, unfinished

    text, unfinished = asyncio.run(read())

    assert "hello hello" in text
    assert unfinished == 7


def test_small_hostile_page_is_read_in_bounded_time():
    began = process_time()

    file_text("evasive.html", "text/html", evasive_html(SMALL_PAGE))

    assert process_time() - began < 5.0


@pytest.mark.parametrize(
    "declarations", [billion_laughs(), quadratic(), external("file:///etc/passwd"), external("http://127.0.0.1:9/")]
)
def test_xml_response_with_own_entities_is_refused(declarations: str):
    with pytest.raises(NodeFailure, match=r"entities of its own|not valid XML"):
        parse(f"{declarations}<x>{ENTITY}</x>".encode())


@pytest.mark.parametrize("given_name", NAMES, ids=ascii)
def test_file_name_never_leads_to_another_folder(given_name: str, tmp_path: Path):
    headers = {"content-disposition": f'attachment; filename="{given_name}"'}
    from_responses = (
        name_from_response(f"http://x.example/{given_name}", {}),
        name_from_response("http://x.example/", headers),
    )
    for name in (file_name(given_name), fit_name(given_name), *from_responses):
        assert name not in ("", ".", "..")
        assert Path(name).name == name
        assert "\\" not in name
        assert not any(ord(char) < 32 for char in name)
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert len(name) <= MAX_NAME_CHARS


@pytest.mark.parametrize("name", ["many members.docx", "many members.xlsx", "many members"])
def test_archive_with_too_many_members_is_refused_before_it_is_opened(name: str, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(zipfile, "ZipFile", fail)

    with pytest.raises(FileUnreadable, match=r"unpacks to more|archive"):
        file_text(name, "", many_members(20_000))
