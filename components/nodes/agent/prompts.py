"""Easel's own prompts for an Agent: complete a question, add citations, repair JSON, and the steps of an Agent whose
model has no native function calling.

Values are inserted by position and never read as templates. A guide for a step in the author's system prompt replaces
ours.
"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from components.nodes.llm.prompts import CITING, structured_output_guide
from components.text.templates.templates import json_text, value_text
from providers.models.text.context_window import count_tokens

STOP = "<|stop|>"
COMPLETE = "complete_task"
FULL_QUESTION_TURN = "Output: "
ANALYSE_TURN = "Analyse the task now."
REFLECT_TURN = "Reflect on these results now."
ANSWER_TURN = "No more calls are possible. Give the final answer now, in full, from what is known so far."

_SHARE_OF_SOURCES = 0.97  # of a model's context

_FULL_QUESTION = """\
Below is a conversation between a user and an assistant. Write the user's last question anew, so that a reader who
knows nothing of the conversation understands it.
- Put in what the question leaves out or only points at, as far as the conversation tells it.
- Turn relative dates into absolute ones. Today is {today}, yesterday was {yesterday}, tomorrow is {tomorrow}.
- Keep the language of the question. If it is complete already, repeat it unchanged.
- Do not answer it. Give the question alone: no introduction, no quotation marks, no label.

Conversation:
{conversation}"""

_CITE_AFTERWARDS = """\
The user sends you a text that was written from the sources below. Give the same text back with citations put in, and
change nothing else: no other words, no other order, no remarks.

{guide}

Sources:
{sources}"""

_REFORMAT = """\
The user sends you a text that should have been JSON and cannot be read. Say the same as JSON. Output JSON only: no
Markdown, no explanation.

"""

_ANALYSE = """\
You prepare the work of an agent. Judge how hard its task is, LOW, MEDIUM or HIGH, and write a short plan.
- LOW: small talk, or what can be answered at once. Say so in one line and plan nothing.
- MEDIUM: one or two calls. HIGH: several steps that build on one another; number them.
- Name the functions that a step needs, and what would show that the task is done.
- If the conversation shows that work has been done already, begin with what is known and what is still missing."""

_NEXT_STEP = """\
You work in steps. Today is {today}. In each step you say which functions are to be called next; several calls that do
not need each other's results belong into one step. Think in private between <think> and </think> if you must.

Answer with a JSON array of objects {{"name": ..., "arguments": {{...}}}} and nothing else, followed by {stop}.
When the task is done, or you need no function, call {complete} with your whole answer to the user:
[{{"name": "{complete}", "arguments": {{"answer": "..."}}}}]{stop}"""

_PLAN = """\
- Call a function only if its result brings the goal nearer; never repeat a call that has already answered.
- Take arguments from the conversation and from earlier results. Do not invent values; if one is missing, finish with a
  question to the user.
- If a call has failed, change its arguments or try another function, once or twice, and then go on without it."""

_REFLECT = """\
You look at what the functions of the last step returned, with the goal in mind. Say how far the goal is reached, what
is missing or contradicts itself, and what to do next. One or two sentences are enough for a simple goal."""


def step_guides() -> dict[str, str]:
    """Return our guides of the steps by the names of the sections that replace them in an author's system prompt."""
    return {
        "task_analysis": _ANALYSE,
        "plan_generation": _PLAN,
        "reflection": _REFLECT,
        "citation_guidelines": CITING,
    }


def full_question(messages: Sequence[Mapping[str, str]], today: date) -> str:
    """Return the prompt that asks to complete the last question of a conversation, sent with `FULL_QUESTION_TURN`."""
    lines = (f"{m['role'].upper()}: {m['content']}" for m in messages if m["role"] in ("user", "assistant"))
    return _FULL_QUESTION.format(
        today=today.isoformat(),
        yesterday=(today - timedelta(days=1)).isoformat(),
        tomorrow=(today + timedelta(days=1)).isoformat(),
        conversation="\n".join(lines),
    )


def cite_afterwards(guide: str, sources: str) -> str:
    """Return the prompt that asks to add citations to a finished text."""
    return _CITE_AFTERWARDS.format(guide=guide, sources=sources)


def source_blocks(chunks: Mapping[str, Any], context_tokens: int) -> str:
    """Return the sources of a run as text for a model: one block each, as many as fit."""
    tokens_left = int(context_tokens * _SHARE_OF_SOURCES)
    blocks: list[str] = []
    for number, chunk in chunks.items():
        if tokens_left <= 0:
            break
        block = _source_block(number, chunk)
        tokens_left -= count_tokens(block)
        blocks.append(block)
    return "\n".join(blocks)


def reformat(schema: Mapping[str, Any]) -> str:
    """Return the prompt that asks to rewrite an unreadable text as JSON."""
    return _REFORMAT + structured_output_guide(schema)


def analyse_task(own: str, agent: str, functions: Sequence[Mapping[str, Any]]) -> str:
    """Return the prompt that asks for a judgement of the task and a plan; `own` is the author's guide."""
    return _sections((own or _ANALYSE, ""), (agent, "The agent"), (_list_functions(functions), "Its functions"))


def next_step(own: str, agent: str, analysis: str, functions: Sequence[Mapping[str, Any]], today: date) -> str:
    """Return the prompt that asks for the next calls; `own` is the author's guide."""
    form = _NEXT_STEP.format(today=today.isoformat(), stop=STOP, complete=COMPLETE)
    return _sections(
        (agent, ""), (form, ""), (own or _PLAN, "Rules"), (_list_functions(functions), "Functions"), (analysis, "Plan")
    )


def reflect(own: str, goal: str, results: str) -> str:
    """Return the prompt that asks what the results of a step mean for the goal; `own` is the author's guide."""
    return _sections((own or _REFLECT, ""), (goal, "Goal"), (results, "Results"))


def observation(results: str, reflection: str) -> str:
    """Return the message with a step's results and the model's reflection on them."""
    return _sections((results, "Observation"), (reflection, "Reflection"))


def _list_functions(functions: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(json_text(function["function"]) for function in functions)


def _sections(*parts: tuple[str, str]) -> str:
    """Join the non-empty texts, each under its title if it has one."""
    return "\n\n".join(f"## {title}\n{text}" if title else text for text, title in parts if text)


def _source_block(number: str, chunk: Mapping[str, Any]) -> str:
    lines = [f"\nID: {number}"]
    metadata = chunk.get("document_metadata")
    facts = [("Title", chunk.get("document_name")), ("URL", chunk.get("url"))]
    facts += list(metadata.items()) if isinstance(metadata, Mapping) else []
    lines += [f"├── {name}: {' '.join(value_text(value).splitlines())}" for name, value in facts if value]
    lines += ["└── Content:", value_text(chunk.get("content"))]
    return "\n".join(lines)
