"""What a research asks its model, and how the answers are read (tools 9).

What cannot be read as asked for ends a question: evidence then counts as sufficient, and no questions follow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.nodes.llm.json_in_text import read_json
from components.text.templates.templates import value_text

MOST_FOLLOWING = 3  # questions that follow from one
LONGEST = 1000  # characters of a question

_CHECK = (
    "You judge whether gathered information is enough to answer a question completely and correctly. Answer with JSON "
    'alone: {"is_sufficient": true or false, "reasoning": "one or two sentences", "missing_information": ["what is '
    'lacking", ...]}. Judge by what is there, not by what you know. Where nothing lacks, missing_information is empty.'
)
_FOLLOW = (
    "Information was gathered for a question and is not enough. Name one to three further questions whose answers "
    "would fill the gaps, each different from the question and from the others, and for each the words to search for. "
    'Answer with JSON alone: {"questions": [{"question": "...", "query": "words to search for"}, ...]}. Write in the '
    "language of the question."
)
_ANSWER = (
    "Information was gathered for the user's question by searching several times. Answer from it; say plainly what it "
    "leaves open, and do not fill gaps by guessing."
)
_NOTHING = "(nothing was found)"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a model thinks of the evidence for a question."""

    is_sufficient: bool = True
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A question that follows from another one, and what to search for."""

    question: str
    query: str


def check(question: str, evidence: str) -> list[dict[str, str]]:
    """Whether the evidence is enough."""
    return _messages(_CHECK, _sections(Question=question, Information=evidence or _NOTHING))


def follow_ups(question: str, query: str, missing: tuple[str, ...], evidence: str) -> list[dict[str, str]]:
    """What to look for next."""
    lacking = "\n".join(f"- {each}" for each in missing) or "(not told)"
    asked = {"Question": question, "Searched for": query, "Missing": lacking, "Information": evidence or _NOTHING}
    return _messages(_FOLLOW, _sections(**asked))


def answering(evidence: str) -> str:
    """What joins the system text of whoever answers from evidence."""
    return f"{_ANSWER}\n\nGathered information:\n{evidence or _NOTHING}"


def verdict_in(answer: str) -> Verdict:
    """What an answer says."""
    told = read_json(answer)
    if not isinstance(told, Mapping) or _truth(told.get("is_sufficient")) is not False:
        return Verdict()
    missing = told.get("missing_information")
    listed = missing if isinstance(missing, list) else [missing]
    return Verdict(False, tuple(text for each in listed if (text := _text(each))))


def follow_ups_in(answer: str) -> list[FollowUp]:
    """The questions that an answer names, three at most."""
    told = read_json(answer)
    listed = told.get("questions") if isinstance(told, Mapping) else told
    found = [_follow_up(each) for each in listed] if isinstance(listed, list) else []
    return [each for each in found if each is not None][:MOST_FOLLOWING]


def _follow_up(told: Any) -> FollowUp | None:
    if not isinstance(told, Mapping):
        told = {"question": told}
    question, query = _text(told.get("question")), _text(told.get("query"))
    return FollowUp(question or query, query or question) if question or query else None


def _text(told: Any) -> str:
    return " ".join(value_text(told).split())[:LONGEST] if isinstance(told, str | int | float) else ""


def _truth(told: Any) -> bool | None:
    """A truth as models write it; None for what is none."""
    if isinstance(told, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(told.strip().lower())
    return told if isinstance(told, bool) else None


def _messages(system: str, asked: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": asked}]


def _sections(**parts: str) -> str:
    return "\n\n".join(f"{title}:\n{text}" for title, text in parts.items())
