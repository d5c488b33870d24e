"""The parts that all nodes with a model call share: parameters, prompt, request, and recognition of errors.

A prompt is assembled in this order: fill the references in the texts, cut the author's guides out of the system text,
add files, add the history, and fit everything into the model's context window. A provider's error arrives as an
answer's text; only `is_error` recognises it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from canvas.errors import ModelError
from components.base import Params
from components.context import NodeContext
from components.nodes.llm.images import images_in, is_image, without_images
from components.nodes.llm.prompts import citation_guide, cut_guides
from components.text.templates import templates
from components.text.templates.templates import value_text
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.context_window import fit_messages, message_budget
from providers.models.types.chat import ChatRequest, ModelSpec

ERROR_MARK = "**ERROR**"
MAX_RETRY_WAIT = 60.0  # seconds between two attempts
_MAX_TURNS = 1_000_000  # turns of a conversation to read at most; more than any conversation has
_SHORT_PROMPT_CHARS = 50_000  # characters; counting their tokens takes about ten milliseconds

Message = dict[str, str]  # {role, content}

_FILES = "sys.files"
_TEMPLATE_KWARGS = "sys.chat_template_kwargs"
_LABELS = {
    "temperature": "Temperature",
    "top_p": "Top P",
    "presence_penalty": "Presence penalty",
    "frequency_penalty": "Frequency penalty",
    "max_tokens": "Max tokens",
    "max_retries": "Max retries",
}


class GenerationParams(Params):
    """The generation parameters of a model. A value is sent only if its `...Enabled` switch is on."""

    llm_id: Any = ""
    temperature: Any = 0
    top_p: Any = 0
    presence_penalty: Any = 0
    frequency_penalty: Any = 0
    max_tokens: Any = 0
    temperature_enabled: Any = Field(default=False, alias="temperatureEnabled")
    top_p_enabled: Any = Field(default=False, alias="topPEnabled")
    presence_penalty_enabled: Any = Field(default=False, alias="presencePenaltyEnabled")
    frequency_penalty_enabled: Any = Field(default=False, alias="frequencyPenaltyEnabled")
    max_tokens_enabled: Any = Field(default=False, alias="maxTokensEnabled")
    thinking: Any = None


class PromptParams(GenerationParams):
    """The parameters of nodes whose author writes the prompt. They are validated when the canvas is loaded."""

    llm_id: Any = Field(default="", validate_default=True)
    sys_prompt: Any = ""
    prompts: list[Message] = Field(default=[{"role": "user", "content": "{sys.query}"}])
    cite: Any = True
    visual_files_var: Any = None

    @field_validator("llm_id")
    @classmethod
    def _names_a_model(cls, value: Any) -> Any:
        if not value:
            raise ValueError("[Agent] LLM is empty; choose a model")
        return value

    @field_validator("prompts", mode="before")
    @classmethod
    def _as_messages(cls, value: Any) -> list[Message]:
        if not value:
            raise ValueError("[Agent] User prompt is empty; give at least one message")
        return [_message(item) for item in (value if isinstance(value, list) else [value])]

    @field_validator("temperature", "top_p", "presence_penalty", "frequency_penalty")
    @classmethod
    def _is_a_fraction(cls, value: Any, info: ValidationInfo) -> Any:
        amount = to_number(value)
        if amount is None or not 0 <= amount <= 1:
            raise ValueError(f"[Agent] {_label(info)} {value} is not a number from 0 to 1")
        return value

    @field_validator("max_tokens", "max_retries")
    @classmethod
    def _is_a_count(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"[Agent] {_label(info)} {value} is not 0 or a positive integer")
        return value


@dataclass(frozen=True, slots=True)
class Prompt:
    """A node's prompt before it is fitted into the context window: texts with values filled in, and their images."""

    system: str
    messages: Sequence[Message]
    images: Sequence[str] = ()
    template_kwargs: Mapping[str, Any] | None = None
    guides: Mapping[str, str] = field(default_factory=dict[str, str])  # the author's own, by lower-case tag

    def with_system(self, *added: str) -> "Prompt":
        """Return the prompt with texts appended to its system text."""
        return replace(self, system=join_sections(self.system, *added))


class NoAnswer(ModelError):
    """Raised when a model gave no answer, or could not be asked. The message is the `**ERROR**` text."""


def is_error(answer: str) -> bool:
    """Return whether an answer is a provider's error in its text form, or any text with the error mark."""
    return ERROR_MARK in answer


def default_answer(params: Params) -> Any | None:
    """Return the author's answer to a failed call: the default value under `comment`, None if there is none."""
    return (params.exception_default_value or None) if params.exception_method == "comment" else None


def retry_wait(params: Params, attempt: int) -> float:
    """Return the seconds to wait after the given attempt; `attempt` is 0 for the first one."""
    return min(MAX_RETRY_WAIT, base_delay(params) * 2.0 ** min(attempt, 32))  # 2**32 s is far above MAX_RETRY_WAIT


def base_delay(params: Params) -> float:
    """Return the seconds to wait after the first failed request."""
    return float(min(max(0, to_number(params.delay_after_error) or 0), MAX_RETRY_WAIT))


def to_number(value: Any) -> float | int | None:
    """Return the value as a number, also if it is written as text; None for anything else, NaN and infinities."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def history_window(params: Params) -> int:
    """Return how many turns of the conversation the node includes in its prompt."""
    return int(min(to_number(params.message_history_window_size) or 0, _MAX_TURNS))


def generation_params(params: GenerationParams) -> dict[str, Any]:
    """Return the generation parameters to send, under their upstream names."""
    sent: dict[str, Any] = {}
    limit = to_number(params.max_tokens)
    if params.max_tokens_enabled and limit is not None and limit >= 1:
        sent["max_tokens"] = int(limit)
    temperature = to_number(params.temperature)
    if params.temperature_enabled and temperature is not None:
        sent["temperature"] = temperature
    for name, enabled, value in (
        ("top_p", params.top_p_enabled, params.top_p),
        ("presence_penalty", params.presence_penalty_enabled, params.presence_penalty),
        ("frequency_penalty", params.frequency_penalty_enabled, params.frequency_penalty),
    ):
        amount = to_number(value)
        if enabled and amount is not None and amount > 0:
            sent[name] = amount
    if params.thinking in ("enabled", "disabled"):
        sent["thinking"] = params.thinking
    return sent


async def assemble_prompt(
    params: PromptParams, ctx: NodeContext, *, question: str | None = None, cites: bool = True
) -> Prompt:
    """Return the node's prompt with every reference filled in; the values are noted as the node's inputs.

    A `question` replaces the prompts and is used unchanged. `cites`: add the citation guide if the run has sources.
    Raises UnresolvedReference for a reference to an unknown node or global.
    """
    authored = params.prompts if question is None else []
    texts = [str(params.sys_prompt or ""), *(m["content"] for m in authored)]
    filled = _ReferenceFiller(ctx)
    for reference in _references_to_images(params.visual_files_var):
        filled.images += images_in(ctx.lookup(reference))
    system, *contents = (templates.format_text(text, filled.text_of) for text in texts)
    prompts = [{"role": m["role"], "content": content} for m, content in zip(authored, contents, strict=True)]
    if question is not None:
        prompts = [{"role": "user", "content": question}]
    if ctx.exists(_FILES):
        files = ctx.lookup(_FILES)
        filled.images += images_in(files)
        if not any(found.expression == _FILES for found in templates.find_references(texts)):
            prompts = _append_files(prompts, files)
    system, guides = cut_guides(system)
    if cites and params.cite and (await ctx.references()).get("chunks"):
        system = join_sections(system, citation_guide(guides.get("citation_guidelines", "")))
    messages = continue_history(await load_history(params, ctx), prompts)
    return Prompt(system, messages, tuple(dict.fromkeys(filled.images)), load_template_kwargs(ctx), guides)


def join_sections(*texts: str) -> str:
    """Join the non-empty texts with a blank line between them."""
    return "\n\n".join(text for text in texts if text)


async def load_history(params: Params, ctx: NodeContext) -> list[Message]:
    """Return the conversation before this run's question, which is the last entry and left out."""
    entries = await ctx.history(history_window(params))
    return [{"role": str(entry["role"]), "content": value_text(entry["content"])} for entry in entries[:-1]]


def continue_history(before: Sequence[Message], prompts: Sequence[Message]) -> list[Message]:
    """Append prompts to the history. A last message with the same role as the first prompt is replaced by it."""
    messages = list(before)
    for prompt in prompts:
        if messages and len(messages) == len(before) and messages[-1]["role"] == prompt["role"]:
            messages[-1] = prompt
        else:
            messages.append(prompt)
    return messages


async def build_request(
    prompt: Prompt, params: GenerationParams, spec: ModelSpec, *, retries: int | None = 0, retry_delay: float = 2.0
) -> ChatRequest:
    """Return the prompt as a request that fits the model. A model without vision gets no images.

    The tokens of a long prompt are counted in a thread, so that other nodes do not wait. Raises NoAnswer with an
    `**ERROR**` text if no question is left.
    """
    length = len(prompt.system) + sum(len(message["content"]) for message in prompt.messages)
    is_short = length <= _SHORT_PROMPT_CHARS
    return ChatRequest(
        messages=_fit_prompt(prompt, spec) if is_short else await in_untrusted_thread(_fit_prompt, prompt, spec),
        params=generation_params(params),
        images=prompt.images if "vision" in spec.kinds else (),
        chat_template_kwargs=prompt.template_kwargs,
        retries=retries,
        retry_delay=retry_delay,
    )


def load_template_kwargs(ctx: NodeContext) -> Mapping[str, Any] | None:
    """Return `sys.chat_template_kwargs`: an object or its JSON text. Anything else is ignored with a warning."""
    value = ctx.lookup(_TEMPLATE_KWARGS) if ctx.exists(_TEMPLATE_KWARGS) else None
    if value in (None, ""):
        return None
    try:
        decoded = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        decoded = None
    if isinstance(decoded, dict):
        return decoded
    ctx.log.warning("chat_template_kwargs_ignored", reason="not an object", type=type(value).__name__)
    return None


class _ReferenceFiller:
    """Fills the references in the texts of one prompt, and collects the images in their values."""

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self.images: list[str] = []

    def text_of(self, expression: str) -> str:
        value = self._ctx.lookup(expression)
        self.images += images_in(value)
        text = value_text(without_images(value))
        self._ctx.note_input(expression, text)
        return text


def _references_to_images(stored: Any) -> list[str]:
    """Return the references in `visual_files_var`, which is one reference or a list of them."""
    listed: list[Any] = stored if isinstance(stored, list) else [stored]
    return [reference for reference in listed if isinstance(reference, str) and reference.strip()]


def _append_files(prompts: list[Message], files: Any) -> list[Message]:
    """Append the texts of uploaded files to the last user message."""
    texts = [file for file in files if isinstance(file, str) and not is_image(file)] if isinstance(files, list) else []
    if not texts:
        return prompts
    last = max((at for at, prompt in enumerate(prompts) if prompt["role"] == "user"), default=None)
    if last is None:
        return [*prompts, {"role": "user", "content": join_sections(*texts)}]
    content = join_sections(prompts[last]["content"], *texts)
    return [*prompts[:last], {"role": "user", "content": content}, *prompts[last + 1 :]]


def _fit_prompt(prompt: Prompt, spec: ModelSpec) -> list[dict[str, Any]]:
    """Return the messages to send, cut to the context window, without an empty system message."""
    system: Message = {"role": "system", "content": prompt.system}
    fitted = fit_messages([system, *prompt.messages], message_budget(spec.context_tokens))
    if len(fitted) < 2:
        raise NoAnswer(f"{ERROR_MARK}: Insufficient messages: there is nothing to ask {spec.id}; add a user prompt")
    last = fitted[-1]
    if last["role"] != "user" or not str(last["content"]).strip():
        raise NoAnswer(f"{ERROR_MARK}: The user message is empty; check the prompts and the context size of {spec.id}")
    return [message for message in fitted if message["role"] != "system" or message["content"]]


def _message(item: Any) -> Message:
    if isinstance(item, Mapping):
        return {"role": str(item.get("role") or "user"), "content": value_text(item.get("content"))}
    if isinstance(item, str):
        return {"role": "user", "content": item}
    raise ValueError(f"[Agent] User prompt {item} is neither a text nor a message with role and content")


def _label(info: ValidationInfo) -> str:
    return _LABELS[str(info.field_name)]
