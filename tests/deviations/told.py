"""What a canvas told when it was played through the real stack: rows, Celery tasks, events.

told = stage.case("join_unequal_switch")                       # a recorded case
told = stage.play(drawn("begin -> Message:Out", {"Message:Out": says("hi")}), {"query": "q"})
assert told.answer == "hi"
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import local_engine
from cli.conformance.cases import Case, CaseRecording, CaseRun, HttpRoute, load_case
from cli.conformance.compare.compare import Difference, ObservedCase, ObservedRun, Refusal, compare
from cli.conformance.compare.normalise import normalise, normalise_events
from cli.conformance.play import runner

RECORDINGS = Path(__file__).parent.parent / "recordings"

_SHORT = {"node_started": "+", "node_finished": "-"}
_THOUGHT = re.compile("<think>(.*?)</think>", re.DOTALL)
_DATE = re.compile(r"[\d-]{10} [\d:]{8}")

Texts = Callable[[str], str]


def states(*rows: str, case: str | None = None) -> pytest.MarkDecorator:
    """What a test states: rows of the difference tables and, if it has one, the recorded case it plays as `told`.

    A recorded case that is looked at and not played stands among the rows.
    """
    name = "-".join(rows)
    if case is None:
        return pytest.mark.parametrize("row", [pytest.param(rows, id=name)], indirect=True)
    return pytest.mark.parametrize(("row", "told"), [pytest.param(rows, case, id=f"{name}-{case}")], indirect=True)


def recorded(name: str) -> Case:
    """A recorded case."""
    return load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)


@dataclass(frozen=True, slots=True)
class Told:
    """A case that was played. What is asked about one run is asked about the last, unless `run` says otherwise."""

    case: Case
    played: ObservedCase

    @property
    def runs(self) -> Sequence[ObservedRun]:
        return self.played.runs

    @property
    def answers(self) -> list[str]:
        """What was said in each run, reasoning between think tags."""
        return [run.answer for run in self.runs]

    @property
    def answer(self) -> str:
        return self.answers[-1]

    @property
    def error(self) -> str:
        return self.runs[-1].error

    @property
    def requests(self) -> Sequence[Mapping[str, Any]]:
        """{model, messages, tools, params} of all that a model was asked."""
        return self.played.llm_requests or ()

    def outputs(self, node: str, run: int = -1) -> dict[str, Any]:
        """A node's outputs without its times."""
        return normalise(self.runs[run].outputs[node], self.played.http_base)

    def story(self, run: int = -1) -> list[str]:
        """The events in a short form: "+node" started, "-node" finished, what was said is left out."""
        return [
            f"{_SHORT[event.name]}{event.node_id}" if event.name in _SHORT else event.name
            for event in normalise_events(self.runs[run].events)
            if event.name not in ("message", "message_end")
        ]

    def count(self, step: str, run: int = -1) -> int:
        """How often a step stands in the story."""
        return self.story(run).count(step)

    def finished(self, node: str, run: int = -1) -> Mapping[str, Any]:
        """The data of a node's last `node_finished`."""
        events = [event for event in self.runs[run].events if event["event"] == "node_finished"]
        return [event["data"] for event in events if event["data"]["component_id"] == node][-1]


def rest_differs(told: Told, recorded_text: Texts, our_text: Texts = str) -> Difference | None:
    """The first difference from the recording that is left when its texts, and ours, are seen in another way."""
    recording = CaseRecording.model_validate(_seen(told.case.expect.model_dump(), recorded_text))
    runs = [_run_seen(run, our_text) for run in told.runs]
    played = replace(told.played, runs=runs, llm_requests=_seen(told.requests, our_text))
    return compare(replace(told.case, expect=recording), played)


def _run_seen(run: ObservedRun, text: Texts) -> ObservedRun:
    return ObservedRun(**{name: _seen(getattr(run, name), text) for name in ObservedRun.__slots__})


def without_blanks(text: str) -> str:
    """The text without any blanks. Dates keep theirs, and the printed mappings of a history."""
    return text if text.startswith("assistant: ") or _DATE.fullmatch(text) else re.sub(r"\s+", "", text)


def visible_only(case: Case) -> Texts:
    """A text of the recording in which an answer stands with its reasoning, as the answer alone."""
    said = [run.answer for run in case.expect.runs]
    visible = {_THOUGHT.sub(r"\1", answer): _THOUGHT.sub("", answer) for answer in said if "<think>" in answer}
    return lambda text: visible.get(text, text)


def _seen(value: Any, text: Texts) -> Any:
    match value:
        case str():
            return text(value)
        case Mapping():
            return {key: _seen(item, text) for key, item in value.items()}
        case list() | tuple():
            return [_seen(item, text) for item in value]
        case _:
            return value


# -- canvases --------------------------------------------------------------------------------------------------------
Params = Mapping[str, Any]


def drawn(
    edges: str,
    params: Mapping[str, Params] | None = None,
    *,
    inside: Mapping[str, str] | None = None,
    env: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A stored document. The id of a node begins with its component; `inside` draws the bodies of containers."""
    components: dict[str, Any] = {}
    for parent, part in [("", edges), *(inside or {}).items()]:
        for source, targets in _edges(part):
            entry = components.setdefault(source, _entry(source, (params or {}).get(source, {}), parent))
            entry["downstream"] += [target for target in targets if target not in entry["downstream"]]
    values = env or {}
    return {
        "components": components,
        "globals": {f"env.{name}": value for name, value in values.items()},
        "variables": {name: {"name": name, "value": value} for name, value in values.items()},
    }


def _edges(part: str) -> Iterator[tuple[str, list[str]]]:
    for chain in part.split(";"):
        groups = [[node.strip() for node in group.split(",")] for group in chain.split("->")]
        for sources, targets in pairwise([*groups, []]):
            yield from ((source, targets) for source in sources)


def _entry(node: str, params: Params, parent: str) -> dict[str, Any]:
    name = "Begin" if node == "begin" else node.partition(":")[0]
    obj = {"component_name": name, "params": dict(params)}
    return {"obj": obj, "downstream": list[str](), "upstream": [], "parent_id": parent or None}


def says(*texts: str, **params: Any) -> Params:
    """A Message with these alternatives."""
    return {"content": list(texts), **params}


def makes(text: str) -> Params:
    """A StringTransform that puts a text together."""
    return {"method": "merge", "script": text, "delimiters": ["|"]}


def breaks(**params: Any) -> Params:
    """A StringTransform that fails as long as `env.broken` is no text."""
    return {"method": "split", "split_ref": "env.broken", "delimiters": [","], **params}


def asks(text: str, **params: Any) -> Params:
    """An LLM."""
    return {"llm_id": "test-model", "prompts": [{"role": "user", "content": text}], **params}


def sets(variable: str, operator: str, parameter: Any = None) -> Params:
    """A VariableAssigner with one assignment."""
    return {"variables": [{"variable": variable, "operator": operator, "parameter": parameter}]}


def repeats(*, until: tuple[str, str, Any], at_most: int = 9, **variables: Any) -> Params:
    """A Loop with constant variables and one condition."""
    variable, operator, value = until
    return {
        "loop_variables": [
            {"variable": name, "input_mode": "constant", "type": "any", "value": first}
            for name, first in variables.items()
        ],
        "loop_termination_condition": [{"variable": variable, "operator": operator, "value": value}],
        "logical_operator": "and",
        "maximum_loop_count": at_most,
    }


def switches(reference: str, operator: str, value: Any, to: Any, otherwise: Any) -> Params:
    """A Switch with one condition."""
    item = {"cpn_id": reference, "operator": operator, "value": value}
    return {"conditions": [{"logical_operator": "and", "items": [item], "to": to}], "end_cpn_ids": otherwise}


# -- playing ---------------------------------------------------------------------------------------------------------
@dataclass
class Stage:
    """An engine, and the recorded cases it has played."""

    engine: local_engine.Engine
    fixtures: runner.Fixtures
    _known: dict[str, Told] = field(default_factory=dict[str, Told])

    def case(self, name: str) -> Told:
        """A recorded case, played once."""
        if name not in self._known:
            self._known[name] = self.carried_out(recorded(name))
        return self._known[name]

    def play(
        self,
        document: Mapping[str, Any],
        *runs: Mapping[str, Any],
        llm: Sequence[Mapping[str, Any]] = (),
        http: Sequence[Mapping[str, Any]] = (),
    ) -> Told:
        """A canvas of a test's own; without `runs` it is asked "q" once."""
        return self.carried_out(
            Case(
                name="drawn",
                description="",
                tags=(),
                match="sequence",
                deviations=frozenset(),
                document=document,
                runs=tuple(CaseRun.model_validate(run) for run in runs or ({"query": "q"},)),
                expect=CaseRecording(runs=[]),
                llm=tuple(llm),
                http=tuple(HttpRoute.model_validate(route) for route in http),
            )
        )

    def carried_out(self, case: Case) -> Told:
        """A case whose document is accepted."""
        played = runner.run_case(self.engine, self.fixtures, case)
        assert not isinstance(played, Refusal), played.message
        return Told(case, played)
