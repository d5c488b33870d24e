"""Browser: a model drives a web browser until it has carried out a task.

DSL: `llm_id`, `prompts` (references as in any prompt), `max_steps`, `headless`, `chromium_sandbox`, `persist_session`,
`upload_sources`, `temperature`, `max_retries`; `enable_default_extensions` is accepted and has no effect. The loop
(`components/browsing/loop.py`) works with any chat model. Chromium reaches the network only through
`providers/http/browser_proxy.py`, which checks every address.
"""

import asyncio
import mimetypes
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.base import Params, component
from components.browsing.files import DownloadedFile, UploadedFile
from components.browsing.loop import AskModel, run_task
from components.browsing.session import BrowserOptions, open_browser
from components.browsing.uploads import fetch_files, fill_and_note, read_sources
from components.context import NodeContext
from components.nodes.llm.model_call import ERROR_MARK, NoAnswer, base_delay, load_template_kwargs, to_number
from components.text.templates.templates import value_text
from providers.models.text.context_window import fit_messages, message_budget
from providers.models.text.sanitizer import clean
from providers.models.types.chat import ChatModel, ChatRequest

MAX_TEXT_CHARS = 8000  # characters of page text in one request to the model
MIN_TEXT_CHARS = 2000  # the same, for a model with a small context window

_LABELS = {
    "headless": "Headless",
    "enable_default_extensions": "Enable default extensions",
    "chromium_sandbox": "Chromium sandbox",
    "persist_session": "Persist session",
}


class BrowserParams(Params):
    default_outputs = ("content", "downloaded_files")
    later_outputs = ()

    llm_id: Any = Field(default="", validate_default=True)
    prompts: Any = "{sys.query}"
    max_steps: Any = 30
    headless: Any = True
    enable_default_extensions: Any = False
    chromium_sandbox: Any = False
    persist_session: Any = True
    upload_sources: Any = Field(default_factory=list[Any])
    temperature: Any = None

    @field_validator("llm_id")
    @classmethod
    def _names_a_model(cls, value: Any) -> Any:
        if not value:
            raise ValueError("[Browser] LLM is empty; choose a model")
        return value

    @field_validator("prompts")
    @classmethod
    def _has_prompts(cls, value: Any) -> Any:
        if not value:
            raise ValueError("[Browser] Prompts are empty; describe the task of the browser")
        return value

    @field_validator("max_steps")
    @classmethod
    def _is_positive(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ValueError(f"[Browser] Max steps {value} is not a positive integer")
        return value

    @field_validator("headless", "enable_default_extensions", "chromium_sandbox", "persist_session")
    @classmethod
    def _is_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, bool):
            raise ValueError(f"[Browser] {_LABELS[str(info.field_name)]} {value} is neither true nor false")
        return value


@component("Browser", BrowserParams, effect="unsafe", owns_errors=True)
async def browser(params: BrowserParams, ctx: NodeContext) -> Finished:
    settings = ctx.services.browser
    if settings is None:
        raise NodeFailure("This worker has no browser configured, so the component Browser cannot run here.")
    task = fill_and_note(value_text(params.prompts), ctx)
    sources = read_sources(params.upload_sources, ctx)
    model = await ctx.model(params.llm_id)
    async with _temporary_folder() as scratch:
        files = await fetch_files(sources, scratch / "uploads", settings.upload_url_max_bytes, ctx)
        options = BrowserOptions(
            scratch=scratch,
            profile=_profile_name(ctx) if params.persist_session else None,
            headless=params.headless,
            sandbox=params.chromium_sandbox,
            files=files,
            max_text=min(MAX_TEXT_CHARS, max(MIN_TEXT_CHARS, model.spec.context_tokens // 2)),
        )
        async with open_browser(settings, options, ctx.log) as (page, downloads):
            result = await run_task(
                _append_file_list(task, files), page, _build_ask(params, ctx, model), params.max_steps
            )
            stored = [
                entry for file in await downloads.wait_for_all() if (entry := await _store(file, ctx)) is not None
            ]
    return Finished(outputs={"content": clean(result), "downloaded_files": stored})


@asynccontextmanager
async def _temporary_folder() -> AsyncGenerator[Path]:
    """Create a folder for the browser's temporary files; it is removed afterwards."""
    folder = Path(mkdtemp(prefix="easel-browser-"))
    try:
        (folder / "uploads").mkdir()
        yield folder
    finally:
        await asyncio.to_thread(_remove, folder)


def _remove(folder: Path) -> None:
    for _ in range(3):  # a killed process may still write until it has ended
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _profile_name(ctx: NodeContext) -> str:
    """Return a profile name that is the same in every run of this node of this canvas."""
    return sha256(f"{ctx.canvas_id}\n{ctx.node_id}".encode()).hexdigest()[:32]


# -- requests to the model --------------------------------------------------------------------------------------------


def _append_file_list(task: str, files: Sequence[UploadedFile]) -> str:
    if not files:
        return task
    lines = [f"- file id: {file.id}, name: {file.name}" for file in files]
    return "\n".join([task, "", "Files that can be uploaded:", *lines])


def _build_ask(params: BrowserParams, ctx: NodeContext, model: ChatModel) -> AskModel:
    """Return the function by which the loop asks the model. It raises NoAnswer when the provider fails."""
    temperature = to_number(params.temperature)
    generation = {} if temperature is None else {"temperature": temperature}
    kwargs = load_template_kwargs(ctx)

    async def ask(instructions: str, question: str) -> str:
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": question}]
        answer = await model.complete(
            ChatRequest(
                fit_messages(messages, message_budget(model.spec.context_tokens)),
                params=generation,
                chat_template_kwargs=kwargs,
                retries=int(max(0, to_number(params.max_retries) or 0)),
                retry_delay=base_delay(params),
            )
        )
        ctx.add_usage(answer.usage)
        if answer.error is not None or answer.text.startswith(ERROR_MARK):
            raise NoAnswer(answer.text, kind=answer.error.code if answer.error else None)
        return answer.text

    return ask


# -- downloads --------------------------------------------------------------------------------------------------------


async def _store(file: DownloadedFile, ctx: NodeContext) -> dict[str, Any] | None:
    """Store a downloaded file for the tenant and return its output entry; None (and a warning) if that fails."""
    try:
        if file.path is None:
            raise NodeFailure(file.problem)
        data = await asyncio.to_thread(file.path.read_bytes)
        mime_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        saved = await ctx.save_file(file.name, data, mime_type)
    except (NodeFailure, OSError) as failure:
        ctx.log.warning("download_skipped", file=file.name, reason=str(failure))
        return None
    return {"file_id": saved["doc_id"], "name": file.name, "size": len(data), "parent_id": ""}
