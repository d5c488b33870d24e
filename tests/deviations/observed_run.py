"""Runs canvases through the real stack (rows, Celery tasks, events) and observes the results.

result = case_runner.case("join_unequal_switch")               # a recorded case
result = case_runner.run(dsl_of("begin -> Message:Out", {"Message:Out": message_params("hi")}), {"query": "q"})
assert result.answer == "hi"
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
_REASONING = re.compile("<think>(.*?)</think>", re.DOTALL)
_DATE = re.compile(r"[\d-]{10} [\d:]{8}")

TextFilter = Callable[[str], str]


def covers_rows(*rows: str, case: str | None = None) -> pytest.MarkDecorator:
    """Mark a test with the rows of the difference tables that it covers, and the recorded case of its `result`.

    A recorded case that the test reads and does not run is one of the rows.
    """
    name = "-".join(rows)
    if case is None:
        return pytest.mark.parametrize("row", [pytest.param(rows, id=name)], indirect=True)
    return pytest.mark.parametrize(("row", "result"), [pytest.param(rows, case, id=f"{name}-{case}")], indirect=True)


def load_recorded_case(name: str) -> Case:
    """Load a recorded case."""
    return load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The observed result of a case. Methods about one run mean the last, unless `run` is given."""

    case: Case
    observed: ObservedCase

    @property
    def runs(self) -> Sequence[ObservedRun]:
        return self.observed.runs

    @property
    def answers(self) -> list[str]:
        """The answer of each run, with reasoning between think tags."""
        return [run.answer for run in self.runs]

    @property
    def answer(self) -> str:
        return self.answers[-1]

    @property
    def error(self) -> str:
        return self.runs[-1].error

    @property
    def requests(self) -> Sequence[Mapping[str, Any]]:
        """{model, messages, tools, params} of all requests to models."""
        return self.observed.llm_requests or ()

    def outputs(self, node: str, run: int = -1) -> dict[str, Any]:
        """A node's outputs without its times."""
        return normalise(self.runs[run].outputs[node], self.observed.http_base)

    def steps(self, run: int = -1) -> list[str]:
        """Return the events in a short form, without messages: "+node" started, "-node" finished."""
        return [
            f"{_SHORT[event.name]}{event.node_id}" if event.name in _SHORT else event.name
            for event in normalise_events(self.runs[run].events)
            if event.name not in ("message", "message_end")
        ]

    def count(self, step: str, run: int = -1) -> int:
        """Return how often a step occurs."""
        return self.steps(run).count(step)

    def finished_data(self, node: str, run: int = -1) -> Mapping[str, Any]:
        """The data of a node's last `node_finished`."""
        events = [event for event in self.runs[run].events if event["event"] == "node_finished"]
        return [event["data"] for event in events if event["data"]["component_id"] == node][-1]


def first_remaining_difference(
    result: CaseResult, recorded_text: TextFilter, our_text: TextFilter = str
) -> Difference | None:
    """Return the first difference from the recording after filters are applied to its texts and ours."""
    recording = CaseRecording.model_validate(_map_texts(result.case.expect.model_dump(), recorded_text))
    runs = [_map_run_texts(run, our_text) for run in result.runs]
    observed = replace(result.observed, runs=runs, llm_requests=_map_texts(result.requests, our_text))
    return compare(replace(result.case, expect=recording), observed)


def _map_run_texts(run: ObservedRun, text: TextFilter) -> ObservedRun:
    return ObservedRun(**{name: _map_texts(getattr(run, name), text) for name in ObservedRun.__slots__})


def without_blanks(text: str) -> str:
    """Remove all blanks from a text, except from dates and the printed mappings of a history."""
    return text if text.startswith("assistant: ") or _DATE.fullmatch(text) else re.sub(r"\s+", "", text)


def without_reasoning(case: Case) -> TextFilter:
    """Return a filter that removes the reasoning from the recorded answers of a case."""
    answers = [run.answer for run in case.expect.runs]
    visible = {_REASONING.sub(r"\1", answer): _REASONING.sub("", answer) for answer in answers if "<think>" in answer}
    return lambda text: visible.get(text, text)


def _map_texts(value: Any, text: TextFilter) -> Any:
    match value:
        case str():
            return text(value)
        case Mapping():
            return {key: _map_texts(item, text) for key, item in value.items()}
        case list() | tuple():
            return [_map_texts(item, text) for item in value]
        case _:
            return value


# -- canvases --------------------------------------------------------------------------------------------------------
Params = Mapping[str, Any]


def dsl_of(
    edges: str,
    params: Mapping[str, Params] | None = None,
    *,
    inside: Mapping[str, str] | None = None,
    env: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build a stored document. The id of a node begins with its component; `inside` has the bodies of containers."""
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


def message_params(*texts: str, **params: Any) -> Params:
    """Parameters of a Message with these alternatives."""
    return {"content": list(texts), **params}


def text_params(text: str) -> Params:
    """Parameters of a StringTransform that makes a text."""
    return {"method": "merge", "script": text, "delimiters": ["|"]}


def failing_params(**params: Any) -> Params:
    """Parameters of a StringTransform that fails while `env.broken` is not a text."""
    return {"method": "split", "split_ref": "env.broken", "delimiters": [","], **params}


def llm_params(text: str, **params: Any) -> Params:
    """Parameters of an LLM with this prompt."""
    return {"llm_id": "test-model", "prompts": [{"role": "user", "content": text}], **params}


def assigner_params(variable: str, operator: str, parameter: Any = None) -> Params:
    """Parameters of a VariableAssigner with one assignment."""
    return {"variables": [{"variable": variable, "operator": operator, "parameter": parameter}]}


def loop_params(*, until: tuple[str, str, Any], at_most: int = 9, **variables: Any) -> Params:
    """Parameters of a Loop with constant variables and one condition."""
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


def switch_params(reference: str, operator: str, value: Any, to: Any, otherwise: Any) -> Params:
    """Parameters of a Switch with one condition."""
    item = {"cpn_id": reference, "operator": operator, "value": value}
    return {"conditions": [{"logical_operator": "and", "items": [item], "to": to}], "end_cpn_ids": otherwise}


# -- running ---------------------------------------------------------------------------------------------------------
@dataclass
class CaseRunner:
    """Runs cases on an engine, each recorded case once."""

    engine: local_engine.Engine
    fixtures: runner.Fixtures
    _results: dict[str, CaseResult] = field(default_factory=dict[str, CaseResult])

    def case(self, name: str) -> CaseResult:
        """Return the result of a recorded case, which runs once."""
        if name not in self._results:
            self._results[name] = self.run_case(load_recorded_case(name))
        return self._results[name]

    def run(
        self,
        document: Mapping[str, Any],
        *runs: Mapping[str, Any],
        llm: Sequence[Mapping[str, Any]] = (),
        http: Sequence[Mapping[str, Any]] = (),
    ) -> CaseResult:
        """Run a canvas of the test; without `runs` once, with the query "q"."""
        return self.run_case(
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

    def run_case(self, case: Case) -> CaseResult:
        """Run a case whose document must be accepted."""
        observed = runner.run_case(self.engine, self.fixtures, case)
        assert not isinstance(observed, Refusal), observed.message
        return CaseResult(case, observed)
