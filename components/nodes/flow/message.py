"""Message: write a text to the user.

DSL: `content` (alternative texts with references), `stream`, `status`; `auto_play` reads the answer aloud
(components/nodes/llm/read_aloud.py), `output_format` makes a file of it (components/nodes/flow/message_file.py),
`memory_ids` and `user_id` save it to memories. One alternative is chosen, among those whose nodes have all run. The
choice depends only on the activation, so a second attempt writes the same text. A plain text is written in parts; a
text that contains Jinja, or is not to be streamed, is written as a whole.

A model node that streams into this Message puts its reasoning into its content between think tags. The reasoning is
written between THINK_START and THINK_END and is not part of the stored `content`. Other values are written unchanged,
except that files are removed from them and become `downloads`.

Once the text is written, nothing fails the node any more: audio, file and memory are optional extras.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from canvas.document.references import Ref, ReferenceMatch
from canvas.errors import ExecutorError
from canvas.outcome import Finished, MessageEnd
from components.base import Effect, Params, component
from components.context import AUDIO_END, AUDIO_START, THINK_END, THINK_START, NodeContext
from components.nodes.flow import message_file
from components.nodes.llm.read_aloud import read_aloud
from components.text.templates import templates
from components.text.templates.templates import Lookup
from providers.isolation.untrusted_threads import in_untrusted_thread

_THINK, _THOUGHT = "<think>", "</think>"
_NO_MARKERS = str.maketrans("", "", THINK_START + THINK_END + AUDIO_START + AUDIO_END)
_REFERENCE = re.compile(r"\{.*\}", re.DOTALL)


class MessageParams(Params):
    default_outputs = ("content", "downloads")
    later_outputs = ("attachment", "memory_error")

    content: Any = Field(default=(), validate_default=True)
    stream: Any = True
    status: Any = None
    output_format: Any = None
    auto_play: Any = False
    memory_ids: Any = None
    user_id: Any = None

    @field_validator("content")
    @classmethod
    def _is_not_empty(cls, content: Any) -> Sequence[str]:
        if not content or not isinstance(content, str | list):
            raise ValueError(f"[Message] Content {content!r} must not be empty.")
        texts = [content] if isinstance(content, str) else content
        return tuple(templates.value_text(text).translate(_NO_MARKERS) for text in texts)

    @field_validator("stream")
    @classmethod
    def _streams_or_not(cls, stream: Any) -> bool:
        if not isinstance(stream, bool):
            raise ValueError(f"[Message] stream {stream!r} must be true or false.")
        return stream


def effect_for(params: MessageParams) -> Effect:
    """Return `keyed` for a Message that saves to memories: they recognise a repetition by the activation's id."""
    return "keyed" if params.memory_ids else "idempotent"


@component("Message", MessageParams, effect="keyed", effect_for=effect_for)
async def message(params: MessageParams, ctx: NodeContext) -> Finished:
    values = templates.resolve_values(params.content, ctx.lookup)
    for expression, value in values.items():
        ctx.note_input(expression, templates.display_text(value))
    text = _choose_alternative(params.content, ctx)
    mentioned = {
        found.expression: found.ref for found in templates.find_references([text]) if found.expression in values
    }
    files: list[dict[str, Any]] = []
    texts = {
        expression: _written_text(ref, templates.display_text(values[expression], files), ctx.streams_from)
        for expression, ref in mentioned.items()
    }
    parts = _fill_parts(text, texts) if _is_streamed(params, text) else [await _render(text, texts)]
    for part in parts:
        if part:
            await ctx.write(part)
    written = "".join(parts)
    content = _without_reasoning(written)
    if params.stream and params.auto_play:
        await read_aloud(ctx, content)
    file_format = message_file.parse_format(params.output_format)
    attachment = await message_file.export_file(ctx, file_format, content) if file_format else None
    extras = {"attachment": attachment, "memory_error": await _save_to_memories(params, ctx, written)}
    downloads = _distinct(files)
    return Finished(
        outputs={"content": content, "downloads": downloads, **_set_outputs(extras, ctx)},
        end=MessageEnd(params.status or None, attachment, tuple(downloads), await _run_references(ctx)),
    )


def _without_reasoning(written: str) -> str:
    """Return the written text without the reasoning between its markers. Reasoning without an end marker stays."""
    parts: list[str] = []
    position = 0
    while (start := written.find(THINK_START, position)) >= 0 and (end := written.find(THINK_END, start)) >= 0:
        parts.append(written[position:start])
        position = end + len(THINK_END)
    return "".join([*parts, written[position:]])


def leading_text(
    params: Mapping[str, Any] | MessageParams,
    node_id: str,
    lookup: Lookup,
    is_known: Callable[[Ref], bool],
    streams_from: Callable[[str], bool] = lambda _: False,
) -> str | None:
    """Return the text of a Message before the content of a node, so that the node can write it in advance.

    Return None if that text is not known yet. `is_known` returns whether a reference already has its value. The text
    that the Message writes later begins with exactly this text.
    """
    if not isinstance(params, MessageParams):
        params = MessageParams.model_validate(dict(params))
    if len(params.content) != 1 or not _is_streamed(params, params.content[0]):
        return None
    parts: list[str] = []
    for part in templates.split_references(params.content[0]):
        if isinstance(part, str):
            parts.append(part)
            continue
        if part.ref == Ref(node_id, "content"):
            return "".join(parts)
        if part.ref.node == node_id or not is_known(part.ref):
            return None
        values = templates.resolve_values([part.expression.join("{}")], lookup)
        texts = {
            name: _written_text(part.ref, templates.display_text(value), streams_from) for name, value in values.items()
        }
        parts.extend(_fill_parts(params.content[0][part.start : part.end], texts))
    return None


async def _save_to_memories(params: MessageParams, ctx: NodeContext, written: str) -> str | None:
    """Save the answer, with its reasoning in think tags, to the memories; return an error message if that fails."""
    listed = [params.memory_ids] if isinstance(params.memory_ids, str) else params.memory_ids
    memory_ids = [str(memory_id) for memory_id in listed if memory_id] if isinstance(listed, list) else []
    if not memory_ids:
        return None
    try:
        answer = written.replace(THINK_START, "<think>").replace(THINK_END, "</think>")
        await ctx.remember(memory_ids, _memory_user(params.user_id, ctx), answer)
    except ExecutorError as error:
        ctx.log.warning("memory_not_saved", memory_ids=memory_ids, error=error.message)
        return error.message
    return None


def _memory_user(user_id: Any, ctx: NodeContext) -> str:
    """Return the user id for the memory: the text, or the reference's value if the text is a single reference."""
    is_reference = isinstance(user_id, str) and _REFERENCE.fullmatch(user_id)
    return templates.value_text(ctx.lookup(user_id) if is_reference else user_id)


def _set_outputs(extras: Mapping[str, Any], ctx: NodeContext) -> dict[str, Any]:
    """Return the outputs of this activation, with null for those that only an earlier activation has set."""
    return {name: value for name, value in extras.items() if value is not None or ctx.previous_output(name) is not None}


async def _run_references(ctx: NodeContext) -> Mapping[str, Any] | None:
    """Return the sources that the run has found, or None if there are none."""
    found = await ctx.references()
    return found if found.get("chunks") or found.get("doc_aggs") else None


def _choose_alternative(texts: Sequence[str], ctx: NodeContext) -> str:
    """Choose one of the texts whose nodes have all run, or one of all texts if there is none.

    The choice differs between iterations of a container and between activations.
    """
    eligible = [text for text in texts if all(map(ctx.has_run, _nodes(text)))] or texts
    seed = f"{ctx.choice_seed}\n{ctx.node_id}\n{ctx.scope_item}\n{ctx.visit}".encode()
    return eligible[int.from_bytes(hashlib.sha256(seed).digest()[:8]) % len(eligible)]


def _nodes(text: str) -> set[str]:
    return {found.ref.node for found in templates.find_references([text]) if found.ref.node is not None}


def _is_streamed(params: MessageParams, text: str) -> bool:
    return params.stream and not templates.looks_like_jinja(text)


def _fill_parts(text: str, texts: Mapping[str, str]) -> list[str]:
    def fill(part: str | ReferenceMatch) -> str:
        return part if isinstance(part, str) else texts.get(part.expression, text[part.start : part.end])

    return [fill(part) for part in templates.split_references(text)]


async def _render(text: str, texts: Mapping[str, str]) -> str:
    """Render the whole text with Jinja, off the event loop, because a template may take almost a second."""
    return await in_untrusted_thread(templates.render, text, texts)


def _written_text(ref: Ref, text: str, streams_from: Callable[[str], bool]) -> str:
    """Return a value's text as it is written: without markers, except around the reasoning of a node that streams."""
    text = text.translate(_NO_MARKERS)
    if ref.node is None or ref.root != "content" or ref.path or not streams_from(ref.node):
        return text
    return _with_markers(text)


def _with_markers(text: str) -> str:
    """Replace each pair of think tags by markers; a tag without its counterpart stays."""
    parts: list[str] = []
    position = 0
    while (start := text.find(_THINK, position)) >= 0 and (end := text.find(_THOUGHT, start)) >= 0:
        parts += (text[position:start], THINK_START, text[start + len(_THINK) : end], THINK_END)
        position = end + len(_THOUGHT)
    return "".join([*parts, text[position:]])


def _distinct(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every file once, by `doc_id`, with its first description."""
    first: dict[str, dict[str, Any]] = {}
    for file in files:
        first.setdefault(templates.json_text(file["doc_id"]), file)
    return list(first.values())
