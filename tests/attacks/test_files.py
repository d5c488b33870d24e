"""Files that harm whoever opens them: read in bounded time and memory, and nothing of this machine in what they say."""

import asyncio
import resource
import sys
import zipfile
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from time import process_time

import pytest

from api.http.uploads import MAX_NAME_CHARS, file_name
from canvas.errors import NodeFailure
from components.browsing.files import fit_name, name_from_response
from components.text.extraction.file_kinds import FileUnreadable
from components.text.extraction.file_texts import MAX_CHARACTERS, UnparsedFile, file_text
from components.text.extraction.page_text import SMALL_PAGE
from components.tools.framework.xml_tree import parse
from providers.isolation import limited_process
from providers.isolation.limited_process import OWNER, ProcessLimits, ProcessPool
from tests.attacks.files import ENTITY, FILES, MIB, evasive_html, external, laughing, many_members, quadratic

MOST_SECONDS = 15.0  # of computing
MOST_MEMORY = 1024 * MIB  # of addresses, beyond what the process has to begin with
OUTSIDE = ("root:", "/bin/", "haha" * 100)

NAMES = (
    "../../etc/passwd", "..\\..\\windows\\system32", "/etc/passwd", "C:\\boot.ini", "a/../../b",
    "....//....//etc/passwd",
    "..%2f..%2fetc%2fpasswd", "..", ".", "", " ", "...", "a\x00.png", "a\r\nX-Evil: 1", "a\x1b[2J", "\u202egnp.exe",
    "~/.ssh/id_rsa", "file:///etc/passwd", "\\\\host\\share", "a" * 5000, "é" * 5000, "\ud800", "con", "a;rm -rf /",
    "$(id)", "`id`", "-rf", "a|b", "\u2028a", "．．／etc", "\ufeff..",
)  # fmt: skip


def _read(name: str, answers: "Queue[tuple[str, float]]") -> None:
    """In a process of its own, which may not have more memory than this."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    data = FILES[name]()
    resource.setrlimit(resource.RLIMIT_AS, (held + MOST_MEMORY + 6 * len(data), resource.RLIM_INFINITY))
    began = process_time()
    try:
        text = file_text(name, "", data)
    except NodeFailure as failure:
        text = f"refused: {failure.message}"
    except BaseException as error:  # the test shows it
        text = f"BROKEN: {type(error).__name__}: {error}"
    answers.put((text[: 2 * MAX_CHARACTERS], process_time() - began))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded and measured as Linux does it")
@pytest.mark.parametrize("name", FILES)
def test_no_file_takes_more_time_or_memory_than_a_large_one(name: str):
    processes = get_context("fork")
    answers: Queue[tuple[str, float]] = processes.Queue()
    reader = processes.Process(target=_read, args=(name, answers))
    reader.start()
    try:
        text, seconds = answers.get(timeout=100)
    finally:
        reader.kill()
        reader.join()

    assert not text.startswith("BROKEN")
    assert seconds < MOST_SECONDS
    assert len(text) < MAX_CHARACTERS + 1000
    assert not any(told in text for told in OUTSIDE)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessPool]:
    """Processes that give a file one second."""
    pool = ProcessPool(2, ProcessLimits(seconds=1.0))
    monkeypatch.setattr(limited_process, "process_pool", lambda: pool)
    yield pool
    pool.close()


def test_a_page_that_evades_the_look_at_its_tags_is_ended_by_its_limits(impatient: ProcessPool):
    file = UnparsedFile("evasive.html", "text/html", evasive_html(5 * MIB // 2))

    with pytest.raises(FileUnreadable, match=r'"evasive.html" \(HTML page\) cannot be read within its limits'):
        asyncio.run(file.text())
    with pytest.raises(FileUnreadable, match=r"longer than 1 s"):
        asyncio.run(file.full_text(MAX_CHARACTERS))
    with pytest.raises(FileUnreadable, match=r"longer than 1 s"):
        file.text_blocking()


def test_files_that_take_all_their_time_keep_nobody_else_waiting(impatient: ProcessPool):
    async def read() -> tuple[str, int]:
        OWNER.set("attacker")
        hostile = UnparsedFile("evasive.html", "text/html", evasive_html(5 * MIB // 2))
        attack = [asyncio.create_task(hostile.text()) for _ in range(7)]
        OWNER.set("somebody else")
        page = b"<p>" + b"hello " * SMALL_PAGE
        while not impatient.is_busy:
            await asyncio.sleep(0.001)
        text = await UnparsedFile("honest.html", "text/html", page).text()
        still = sum(not each.done() for each in attack)
        for each in attack:
            each.cancel()
        await asyncio.gather(*attack, return_exceptions=True)
        return text, still

    text, still = asyncio.run(read())

    assert "hello hello" in text
    assert still == 7


def test_a_small_page_is_read_in_a_moment_whatever_it_is():
    began = process_time()

    file_text("evasive.html", "text/html", evasive_html(SMALL_PAGE))

    assert process_time() - began < 5.0


@pytest.mark.parametrize(
    "declarations", [laughing(), quadratic(), external("file:///etc/passwd"), external("http://127.0.0.1:9/")]
)
def test_answers_in_xml_have_no_entities_of_their_own(declarations: str):
    with pytest.raises(NodeFailure, match=r"entities of its own|not valid XML"):
        parse(f"{declarations}<x>{ENTITY}</x>".encode())


@pytest.mark.parametrize("written", NAMES, ids=ascii)
def test_a_files_name_leads_to_no_other_folder(written: str, tmp_path: Path):
    said = {"content-disposition": f'attachment; filename="{written}"'}
    by_address = (name_from_response(f"http://x.example/{written}", {}), name_from_response("http://x.example/", said))
    for name in (file_name(written), fit_name(written), *by_address):
        assert name not in ("", ".", "..")
        assert Path(name).name == name
        assert "\\" not in name
        assert not any(ord(letter) < 32 for letter in name)
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert len(name) <= MAX_NAME_CHARS


@pytest.mark.parametrize("name", ["many members.docx", "many members.xlsx", "many members"])
def test_an_archive_of_very_many_files_is_not_even_opened(name: str, monkeypatch: pytest.MonkeyPatch):
    def opened(*_: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(zipfile, "ZipFile", opened)

    with pytest.raises(FileUnreadable, match=r"unpacks to more|archive"):
        file_text(name, "", many_members(20_000))
