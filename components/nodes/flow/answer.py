"""Answer: end the user's turn and wait for the next one. Older canvases are built around it, often in a cycle.

DSL: no fields of its own. Loading the canvas adds `says`: the texts of earlier nodes that no Message writes. The node
writes those texts that the user has not seen yet as one message; then the run waits, like a form without fields. The
query of the next request is the node's output. A text counts as written until its node has run again; a mark beside
that node's outputs records this.
"""

from collections.abc import Iterator
from typing import Any

from canvas.outcome import Finished, WaitingForInput
from components.base import Params, component
from components.context import THINK_END, THINK_START, NodeContext
from components.text.templates import templates

_NO_MARKERS = str.maketrans("", "", THINK_START + THINK_END)


class AnswerParams(Params):
    default_outputs = ("answer", "content")
    later_outputs = ()

    says: Any = ()  # {text, said}: references to a text, and to the mark that it was written


@component("Answer", AnswerParams, effect="pure", assigns=True)
async def answer(params: AnswerParams, ctx: NodeContext) -> Finished | WaitingForInput:
    unwritten = list(_unwritten_texts(params, ctx))
    if ctx.answers is None:
        await ctx.write("\n".join(text for _, text in unwritten))
        return WaitingForInput(inputs={})
    query = ctx.answers.get("query")
    if not query:
        return WaitingForInput(inputs={})  # the request answered other forms
    ctx.note_input("query", query)
    return Finished(outputs={"answer": query, "content": query}, assign={mark: True for mark, _ in unwritten})


def _unwritten_texts(params: AnswerParams, ctx: NodeContext) -> Iterator[tuple[str, str]]:
    """Yield the mark and the text of every earlier node whose text has not been written yet."""
    for source in params.says:
        text = templates.value_text(ctx.lookup(source["text"])).translate(_NO_MARKERS)
        if text and not ctx.lookup(source["said"]):
            yield source["said"].strip("{}"), text
