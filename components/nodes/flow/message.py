"""Message: what the user reads.

DSL: `content` (alternatives of one text with references), `stream`, `status`; `auto_play` reads the answer aloud
(components/nodes/llm/read_aloud.py), `output_format` makes a file of it (components/nodes/flow/message_file.py),
`memory_ids` and `user_id` have it remembered. One alternative is taken, among those whose nodes have all run; the
choice depends on the visit alone, so a second attempt says the same. A plain text is said piece by piece, a text with
Jinja in it, or one that shall not stream, as a whole.

Reasoning of a model node that speaks in this Message's turn stands in its content between think tags. It is said
between THINK_START and THINK_END and is no part of the stored `content` (components E23). Other values are said as
they are, files are taken out of them and become `downloads`.

Once the text is said nothing fails the node any more: audio, file and memory are extras.
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
    def _says_something(cls, content: Any) -> Sequence[str]:
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


def effect_here(params: MessageParams) -> Effect:
    """What is remembered is kept under the activation's key, so that twice is once."""
    return "keyed" if params.memory_ids else "idempotent"


@component("Message", MessageParams, effect="keyed", effect_here=effect_here)
async def message(params: MessageParams, ctx: NodeContext) -> Finished:
    values = templates.values_of(params.content, ctx.lookup)
    for expression, value in values.items():
        ctx.note_input(expression, templates.shown(value))
    text = _alternative(params.content, ctx)
    mentioned = {found.expression: found.ref for found in templates.mentions([text]) if found.expression in values}
    files: list[dict[str, Any]] = []
    texts = {
        expression: _spoken(ref, templates.shown(values[expression], files), ctx.listens_to)
        for expression, ref in mentioned.items()
    }
    parts = _pieces(text, texts) if _is_piecewise(params, text) else [await _rendered(text, texts)]
    for part in parts:
        if part:
            await ctx.say(part)
    said = "".join(parts)
    content = _without_thoughts(said)
    if params.stream and params.auto_play:
        await read_aloud(ctx, content)
    wanted = message_file.wanted(params.output_format)
    attachment = await message_file.exported(ctx, wanted, content) if wanted else None
    extras = {"attachment": attachment, "memory_error": await _remembered(params, ctx, said)}
    downloads = _distinct(files)
    return Finished(
        outputs={"content": content, "downloads": downloads, **_told(extras, ctx)},
        end=MessageEnd(params.status or None, attachment, tuple(downloads), await _reference(ctx)),
    )


def _without_thoughts(said: str) -> str:
    """What was said without reasoning between its marks. Reasoning that does not end stays."""
    parts: list[str] = []
    position = 0
    while (start := said.find(THINK_START, position)) >= 0 and (end := said.find(THINK_END, start)) >= 0:
        parts.append(said[position:start])
        position = end + len(THINK_END)
    return "".join([*parts, said[position:]])


def opening(
    params: Mapping[str, Any] | MessageParams,
    node_id: str,
    lookup: Lookup,
    known: Callable[[Ref], bool],
    listens_to: Callable[[str], bool] = lambda _: False,
) -> str | None:
    """What a Message says before the content of a node, for that node to say ahead; None if it cannot be known.

    `known` tells whether a reference has its value already. What the Message says later begins with just this text.
    """
    if not isinstance(params, MessageParams):
        params = MessageParams.model_validate(dict(params))
    if len(params.content) != 1 or not _is_piecewise(params, params.content[0]):
        return None
    said: list[str] = []
    for piece in templates.pieces(params.content[0]):
        if isinstance(piece, str):
            said.append(piece)
            continue
        if piece.ref == Ref(node_id, "content"):
            return "".join(said)
        if piece.ref.node == node_id or not known(piece.ref):
            return None
        values = templates.values_of([piece.expression.join("{}")], lookup)
        texts = {name: _spoken(piece.ref, templates.shown(value), listens_to) for name, value in values.items()}
        said.extend(_pieces(params.content[0][piece.start : piece.end], texts))
    return None


async def _remembered(params: MessageParams, ctx: NodeContext, said: str) -> str | None:
    """Save the answer, reasoning in tags, into the memories; why that failed, if it did (components 5)."""
    named = [params.memory_ids] if isinstance(params.memory_ids, str) else params.memory_ids
    memory_ids = [str(memory_id) for memory_id in named if memory_id] if isinstance(named, list) else []
    if not memory_ids:
        return None
    try:
        answer = said.replace(THINK_START, "<think>").replace(THINK_END, "</think>")
        await ctx.remember(memory_ids, _user(params.user_id, ctx), answer)
    except ExecutorError as error:
        ctx.log.warning("memory_not_saved", memory_ids=memory_ids, error=error.message)
        return error.message
    return None


def _user(user_id: Any, ctx: NodeContext) -> str:
    """Whose memory it is: a text, or the value of the one reference that the text is."""
    is_reference = isinstance(user_id, str) and _REFERENCE.fullmatch(user_id)
    return templates.value_text(ctx.lookup(user_id) if is_reference else user_id)


def _told(extras: Mapping[str, Any], ctx: NodeContext) -> dict[str, Any]:
    """The outputs that this visit has, and null for those that an earlier one has left."""
    return {name: value for name, value in extras.items() if value is not None or ctx.previous_output(name) is not None}


async def _reference(ctx: NodeContext) -> Mapping[str, Any] | None:
    """The turn's evidence, if there is any."""
    found = await ctx.references()
    return found if found.get("chunks") or found.get("doc_aggs") else None


def _alternative(texts: Sequence[str], ctx: NodeContext) -> str:
    """One of the texts whose nodes have all run; one of all texts if there is none. Passes of a container differ."""
    eligible = [text for text in texts if all(map(ctx.has_run, _nodes(text)))] or texts
    seed = f"{ctx.run_id}\n{ctx.node_id}\n{ctx.scope_item}\n{ctx.visit}".encode()
    return eligible[int.from_bytes(hashlib.sha256(seed).digest()[:8]) % len(eligible)]


def _nodes(text: str) -> set[str]:
    return {found.ref.node for found in templates.mentions([text]) if found.ref.node is not None}


def _is_piecewise(params: MessageParams, text: str) -> bool:
    return params.stream and not templates.looks_like_jinja(text)


def _pieces(text: str, texts: Mapping[str, str]) -> list[str]:
    def said(piece: str | ReferenceMatch) -> str:
        if isinstance(piece, str):
            return piece
        return texts.get(piece.expression, text[piece.start : piece.end])

    return [said(piece) for piece in templates.pieces(text)]


async def _rendered(text: str, texts: Mapping[str, str]) -> str:
    """The whole text as Jinja makes it; a template may take most of a second, so not on the event loop."""
    return await in_untrusted_thread(templates.rendered, text, texts)


def _spoken(ref: Ref, text: str, listens_to: Callable[[str], bool]) -> str:
    """A value as it is said: no markers but those of the reasoning of a node that is listened to."""
    text = text.translate(_NO_MARKERS)
    if ref.node is None or ref.root != "content" or ref.path or not listens_to(ref.node):
        return text
    return _with_markers(text)


def _with_markers(text: str) -> str:
    """The text with markers for its pairs of think tags; a tag without its other half stays."""
    said: list[str] = []
    position = 0
    while (start := text.find(_THINK, position)) >= 0 and (end := text.find(_THOUGHT, start)) >= 0:
        said += (text[position:start], THINK_START, text[start + len(_THINK) : end], THINK_END)
        position = end + len(_THOUGHT)
    return "".join([*said, text[position:]])


def _distinct(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every file once, by `doc_id`, the first description of each."""
    first: dict[str, dict[str, Any]] = {}
    for file in files:
        first.setdefault(templates.json_text(file["doc_id"]), file)
    return list(first.values())
