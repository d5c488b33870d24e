"""Answer: end the user's turn, and wait for the next. Older canvases are built around it, often in a circle.

DSL: none of its own. Loading it adds `says`: the texts of the nodes before it that no Message says. Coming to it, what
was not said yet of these is said as one message; then the run waits, like a form without fields. The query of the
next request is the answer. A text counts as said until its node has run again: it is marked beside that node's outputs.
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

    says: Any = ()  # {text, said}: references to a text, and to the mark that it was said


@component("Answer", AnswerParams, effect="pure", assigns=True)
async def answer(params: AnswerParams, ctx: NodeContext) -> Finished | WaitingForInput:
    unsaid = list(_unsaid(params, ctx))
    if ctx.answers is None:
        await ctx.say("\n".join(text for _, text in unsaid))
        return WaitingForInput(inputs={})
    query = ctx.answers.get("query")
    if not query:
        return WaitingForInput(inputs={})  # others were answered
    ctx.note_input("query", query)
    return Finished(outputs={"answer": query, "content": query}, assign={mark: True for mark, _ in unsaid})


def _unsaid(params: AnswerParams, ctx: NodeContext) -> Iterator[tuple[str, str]]:
    """The mark and the text of every node before this one that has something new to say."""
    for told in params.says:
        text = templates.value_text(ctx.lookup(told["text"])).translate(_NO_MARKERS)
        if text and not ctx.lookup(told["said"]):
            yield told["said"].strip("{}"), text
