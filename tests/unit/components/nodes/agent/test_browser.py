import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import ModelError, NodeFailure
from canvas.outcome import Finished
from components.browsing.actions import PageAction
from components.browsing.files import DownloadedFile
from components.browsing.page_view import PageView
from components.browsing.session import BrowserOptions, open_browser
from components.nodes.agent import browser as module
from components.nodes.agent.browser import BrowserParams, browser
from providers.address_policy import Guard
from providers.interfaces import BrowserSettings, Services
from providers.models.types.chat import ChatRequest, Completion, ErrorDelta, ModelSpec, Usage
from tests.fakes import FakeContext, FakeHttp, no_network, run

DONE = '{"actions": [{"action": "done", "result": "ok\\u0000"}]}'
SETTINGS = BrowserSettings(Guard())


@dataclass
class Log:
    warnings: list[dict[str, Any]] = field(default_factory=list)

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append({"event": event, **fields})


@dataclass
class Model:
    """A model that returns one answer and records its requests."""

    answer: str | ErrorDelta = DONE
    requests: list[ChatRequest] = field(default_factory=list)

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec("m", "m", "Fake", None)

    async def complete(self, request: ChatRequest) -> Completion:
        self.requests.append(request)
        if isinstance(self.answer, ErrorDelta):
            return Completion(str(self.answer), usage=Usage(1, 1, 2, 1), error=self.answer)
        return Completion(self.answer, usage=Usage(1, 1, 2, 1))


class EmptyPage:
    async def view(self) -> PageView:
        return PageView("about:blank")

    async def act(self, action: PageAction) -> str:
        return ""


class Downloads:
    def __init__(self, files: list[DownloadedFile]) -> None:
        self._files = files

    async def wait_for_all(self) -> list[DownloadedFile]:
        return self._files


@dataclass
class FakeBrowsers:
    """Replaces `open_browser`: records the options of each browser, and returns these downloads."""

    downloads: list[DownloadedFile] = field(default_factory=list)
    options: list[BrowserOptions] = field(default_factory=list)

    @asynccontextmanager
    async def __call__(self, settings: BrowserSettings, options: BrowserOptions, log: Any) -> AsyncGenerator[Any]:
        self.options.append(options)
        assert options.scratch.is_dir()
        yield EmptyPage(), Downloads(self.downloads)


@pytest.fixture
def browsers(monkeypatch: pytest.MonkeyPatch) -> FakeBrowsers:
    browsers = FakeBrowsers()
    monkeypatch.setattr(module, "open_browser", browsers)
    return browsers


def browse(model: Model | None = None, ctx: FakeContext | None = None, **params: Any) -> tuple[Finished, FakeContext]:
    ctx = ctx or FakeContext(globals={"sys.query": "Q"})
    ctx.models = {"m": model or Model()}
    ctx.services = Services(FakeHttp(no_network), browser=SETTINGS)
    ctx.log = Log()
    outcome = run(browser, {"llm_id": "m", **params}, ctx)
    assert isinstance(outcome, Finished)
    return outcome, ctx


# -- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({}, "[Browser] LLM"),
        ({"llm_id": ""}, "[Browser] LLM"),
        ({"llm_id": "m", "prompts": ""}, "[Browser] Prompts"),
        ({"llm_id": "m", "max_steps": 0}, "[Browser] Max steps 0"),
        ({"llm_id": "m", "max_steps": "30"}, "[Browser] Max steps 30"),
        ({"llm_id": "m", "max_steps": True}, "[Browser] Max steps True"),
        ({"llm_id": "m", "headless": "true"}, "[Browser] Headless true"),
        ({"llm_id": "m", "enable_default_extensions": 1}, "[Browser] Enable default extensions 1"),
        ({"llm_id": "m", "chromium_sandbox": None}, "[Browser] Chromium sandbox None"),
        ({"llm_id": "m", "persist_session": 0}, "[Browser] Persist session 0"),
    ],
)
def test_wrong_parameters_are_refused_at_load_with_their_label(params: dict[str, Any], complaint: str):
    with pytest.raises(ValidationError) as refused:
        BrowserParams.model_validate(params)

    assert complaint in str(refused.value)


def test_llm_id_is_the_only_required_parameter():
    params = BrowserParams.model_validate({"llm_id": "m"})

    assert (params.prompts, params.max_steps, params.headless) == ("{sys.query}", 30, True)
    assert (params.persist_session, params.chromium_sandbox, params.upload_sources) == (True, False, [])


# -- a run ------------------------------------------------------------------------------------------------------------


def test_task_is_the_prompt_with_its_references_resolved(browsers: FakeBrowsers):
    model = Model()
    ctx = FakeContext(globals={"sys.query": "Q"}, values={"a": {"list": [1, "ü"]}})

    outcome, ctx = browse(model, ctx, prompts="Do {sys.query} with {a@list}")

    assert '# Task\nDo Q with [1, "ü"]\n' in model.requests[0].messages[-1]["content"]
    assert ctx.inputs == {"sys.query": "Q", "a@list": '[1, "ü"]'}
    assert outcome == Finished(outputs={"content": "ok", "downloaded_files": []})
    assert ctx.usage.calls == 1


def test_model_request_has_the_generation_and_retry_settings_of_the_node(browsers: FakeBrowsers):
    model = Model()

    browse(model, temperature=0.3, max_retries=2, delay_after_error=1)

    assert model.requests[0].params == {"temperature": 0.3}
    assert (model.requests[0].retries, model.requests[0].retry_delay) == (2, 1)
    assert [message["role"] for message in model.requests[0].messages] == ["system", "user"]


def test_a_failing_model_fails_the_node(browsers: FakeBrowsers):
    with pytest.raises(ModelError, match="AUTH_ERROR"):
        browse(Model(ErrorDelta("AUTH_ERROR", "no key")))


def test_files_to_upload_are_listed_below_the_task(browsers: FakeBrowsers):
    model = Model()
    ctx = FakeContext(globals={"sys.query": "Q"}, stored={"f1": b"1", "f2": b"2"})

    browse(model, ctx, upload_sources=["f1", {"id": "f2", "name": "b.pdf"}, "gone"])

    task = "Q\n\nFiles that can be uploaded:\n- file id: f1, name: f1\n- file id: f2, name: b.pdf\n"
    assert task in model.requests[0].messages[-1]["content"]
    assert [file.name for file in browsers.options[0].files] == ["f1", "b.pdf"]


def test_downloads_are_stored_and_failed_ones_are_omitted(browsers: FakeBrowsers, tmp_path: Path):
    (tmp_path / "x").write_bytes(b"%PDF")
    browsers.downloads = [
        DownloadedFile("a.pdf", tmp_path / "x"),
        DownloadedFile("b.pdf", None, "the file is empty"),
        DownloadedFile("c.pdf", tmp_path / "gone"),
    ]

    outcome, ctx = browse()

    (file_id, saved), *others = ctx.saved.items()
    assert saved == ("a.pdf", b"%PDF", "application/pdf")
    assert others == []
    assert outcome.outputs["downloaded_files"] == [{"file_id": file_id, "name": "a.pdf", "size": 4, "parent_id": ""}]
    assert [warning["file"] for warning in ctx.log.warnings] == ["b.pdf", "c.pdf"]
    json.dumps(outcome.outputs, allow_nan=False)


def test_scratch_folder_is_removed_after_the_run(browsers: FakeBrowsers):
    browse()

    assert not browsers.options[0].scratch.exists()


def test_browser_profile_is_shared_by_runs_of_the_same_node_and_canvas_only(browsers: FakeBrowsers):
    def profile(node_id: str = "Browser:A", canvas_id: str = "one", **params: Any) -> str | None:
        ctx = FakeContext(globals={"sys.query": "Q"}, node_id=node_id, canvas_id=canvas_id)
        browse(None, ctx, **params)
        return browsers.options[-1].profile

    assert profile() == profile()
    assert len({profile(), profile("Browser:B"), profile(canvas_id="other")}) == 3
    assert profile(persist_session=False) is None


# -- missing browser or library ---------------------------------------------------------------------------------------


def test_node_without_a_configured_browser_fails():
    ctx = FakeContext(globals={"sys.query": "Q"}, models={"m": Model()})

    with pytest.raises(NodeFailure, match="has no browser configured"):
        run(browser, {"llm_id": "m"}, ctx)


def test_node_without_playwright_fails_and_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)

    async def open_and_fail() -> None:
        async with open_browser(SETTINGS, BrowserOptions(tmp_path), Log()):
            raise AssertionError("there is no Playwright")

    with pytest.raises(NodeFailure, match=r"pip install easel\[browser\]"):
        asyncio.run(open_and_fail())
