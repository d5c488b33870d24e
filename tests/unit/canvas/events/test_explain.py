"""Explain: what a run waits for, in one sentence."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.events.explain import (
    BlockingRun,
    Explanation,
    OpenActivation,
    WaitFacts,
    WaitsFor,
    explain,
    explanation_json,
)
from canvas.state.run_state import REUSE_RULES_VERSION, ActivationStatus, RunStatus
from tests.builders import RUN_ID, canvas_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CANVAS = canvas_of("begin -> search, form -> say")
OTHER = UUID(int=7)


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def activation_of(status: ActivationStatus, node: str = "search", **more: Any) -> OpenActivation:
    """Return an activation that was created a minute ago."""
    fields: dict[str, Any] = {
        "component": "Retrieval", "scope": "", "attempt": 1, "crash_count": 0, "worker": "host:12",
        "lease_until": NOON + timedelta(seconds=7), "not_before": ago(60), "enqueued_at": ago(60),
        "created_at": ago(60), "started_at": ago(50), "finished_at": ago(5),
    }  # fmt: skip
    return OpenActivation(id=UUID(int=1), node_id=node, status=status, **{**fields, **more})


def run_facts(*open_activations: OpenActivation, status: RunStatus = RunStatus.RUNNING, **more: Any) -> WaitFacts:
    """Return the facts of a run in a healthy deployment, with sweeper and workers."""
    fields: dict[str, Any] = {
        "rules_version": REUSE_RULES_VERSION, "is_cancel_requested": False, "error": "", "created_at": ago(120),
        "finished_at": None,
        "expires_at": None, "last_probe_at": ago(1), "swept_since": ago(900), "swept_at": ago(0.5),
    }  # fmt: skip
    fields["counts"] = Counter(activation.status for activation in open_activations)
    return WaitFacts(RUN_ID, status, now=NOON, open_activations=open_activations, **{**fields, **more})


def explained(facts: WaitFacts, limit: float = 600) -> Explanation:
    return explain(facts, CANVAS, lambda _: limit)


@pytest.mark.parametrize(
    ("facts", "kind", "sentence"),
    [
        (run_facts(status=RunStatus.SUCCEEDED), "over", "The run has succeeded."),
        (run_facts(status=RunStatus.CANCELLED), "over", "The run was cancelled."),
        (run_facts(status=RunStatus.FAILED, error="No\nway."), "over", "The run has failed: No way."),
        (
            run_facts(status=RunStatus.QUEUED, blocking_run=BlockingRun(OTHER, RunStatus.WAITING)),
            "session",
            f"It is queued behind run {OTHER.hex} of its session, which is waiting.",
        ),
        (
            run_facts(status=RunStatus.QUEUED, blocking_run=BlockingRun(RUN_ID, RunStatus.QUEUED)),
            "session",
            "It is the next run of its session, and the sweeper starts it within 10 s.",
        ),
        (
            run_facts(activation_of(ActivationStatus.RUNNING, attempt=2)),
            "work",
            "search has been running for 50 s, of the 600 s that it may take: attempt 2, worker host:12.",
        ),
        (
            run_facts(activation_of(ActivationStatus.RUNNING), status=RunStatus.STOPPING, is_cancel_requested=True),
            "letting_go",
            "The run is being cancelled, and search has not stopped yet in worker host:12.",
        ),
        (
            run_facts(activation_of(ActivationStatus.RUNNING, lease_until=ago(3))),
            "silent_lease",
            "The lease of worker host:12 on search expired 3 s ago; "
            "the sweeper gives the work to another worker within 1 s.",
        ),
        (
            run_facts(activation_of(ActivationStatus.RUNNING, lease_until=ago(3)), swept_since=ago(2)),
            "silent_lease",
            "The lease of worker host:12 on search expired 3 s ago; "
            "the sweeper gives the work to another worker within 5 s.",
        ),
        (
            run_facts(activation_of(ActivationStatus.REPORTED)),
            "report",
            "search has reported, and the sweeper advances the run within 2 s if no other process does.",
        ),
        (
            run_facts(activation_of(ActivationStatus.REPORTED), swept_at=ago(300)),
            "report",
            "search has reported, and no sweeper has run for 5 min. Start one with `easel sweeper`: it advances "
            "the run.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY, enqueued_at=ago(1))),
            "worker",
            "search is ready, and waits in the queue for a free worker.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY)),
            "worker",
            "search is ready, and its task message was lost: the sweeper sends it again within a second.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY, enqueued_at=None)),
            "worker",
            "search is ready, and the sweeper sends its task message within a second.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY), last_probe_at=ago(80)),
            "worker",
            "search is ready, and no worker has received anything from the queue for 80 s.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY), last_probe_at=None),
            "worker",
            "search is ready, and no worker has ever received a task message: start one.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY, enqueued_at=ago(1), crash_count=2)),
            "worker",
            "search is ready, and waits in the queue for a free worker; its workers were lost 2 times, and it "
            "fails after one more.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY, not_before=NOON + timedelta(seconds=8))),
            "time",
            "search is due in 8 s.",
        ),
        (
            run_facts(activation_of(ActivationStatus.QUEUED), max_running=4),
            "place",
            "search waits for one of the 4 slots of the run, which are all in use.",
        ),
        (
            run_facts(
                activation_of(ActivationStatus.WAITING, "form", finished_at=ago(7300)),
                status=RunStatus.WAITING,
                forms={UUID(int=1): ({"name": {}, "age": {}}, "Who?")},
                expires_at=NOON + timedelta(days=1),
            ),
            "person",
            "A person must answer form (name, age). The form was shown 2 h ago; "
            "without an answer the run fails on 2026-11-21 at 12:00:00 UTC.",
        ),
        (
            run_facts(activation_of(ActivationStatus.READY), rules_version=REUSE_RULES_VERSION + 1),
            "newer_rules",
            f"It was started under newer routing rules ({REUSE_RULES_VERSION + 1}) than this release knows "
            f"({REUSE_RULES_VERSION}): "
            "a scheduler or worker of the newer release must continue it.",
        ),
        (
            run_facts(counts={ActivationStatus.OPEN: 1}),
            "nobody",
            "Nothing will continue it, which is a bug in Easel: the run is running, and its open activations "
            "are: 1 open. "
            "Report this with the rows of the run, then cancel it.",
        ),
    ],
)  # fmt: skip
def test_explanation_states_in_one_sentence_what_the_run_waits_for(facts: WaitFacts, kind: str, sentence: str):
    found = explained(facts)

    assert (found.wait.kind.value, found.wait.sentence) == (kind, sentence)


def test_explanation_names_running_activations_first_and_lists_the_others():
    facts = run_facts(
        activation_of(ActivationStatus.WAITING, "form"),
        activation_of(ActivationStatus.QUEUED),
        activation_of(ActivationStatus.READY, enqueued_at=ago(1)),
        activation_of(ActivationStatus.RUNNING),
    )

    found = explained(facts)

    assert found.wait.kind is WaitsFor.WORK
    assert [wait.kind for wait in found.also] == [WaitsFor.WORKER, WaitsFor.RUN_SLOT, WaitsFor.PERSON]


def test_explanation_names_the_longest_running_activation():
    facts = run_facts(
        activation_of(ActivationStatus.RUNNING, started_at=ago(5)),
        activation_of(ActivationStatus.RUNNING, "say", started_at=ago(40)),
    )

    assert explained(facts).wait.sentence.startswith("say has been running for 40 s")


def test_explanation_names_a_node_by_its_display_name_and_scope():
    canvas = canvas_of("begin -> search", search={"component": "Retrieval"})
    named = replace(canvas, nodes=tuple(replace(node, name=f"My {node.id}") for node in canvas.nodes))

    found = explain(run_facts(activation_of(ActivationStatus.RUNNING, scope="Iteration:A#0.3")), named, lambda _: inf)

    assert found.wait.sentence == (
        '"My search" (search) in Iteration:A#0.3 has been running for 50 s: attempt 1, worker host:12.'
    )


def test_waiting_run_without_an_open_form_is_explained_as_a_bug():
    found = explained(run_facts(status=RunStatus.WAITING))

    assert found.wait.kind is WaitsFor.NOTHING
    assert "its open activations are: none" in found.wait.sentence


def test_explanation_json_contains_ids_and_times():
    found = explanation_json(
        explained(run_facts(activation_of(ActivationStatus.RUNNING), activation_of(ActivationStatus.REPORTED, "say"))),
        CANVAS,
    )

    assert {name: value for name, value in found.items() if name not in ("sentence", "also")} == {
        "run_id": RUN_ID.hex,
        "status": "running",
        "waits_for": "work",
        "owner": "worker host:12",
        "since": "2026-11-20T11:59:10+00:00",
        "until": "2026-11-20T12:09:10+00:00",
        "node": "search",
        "node_name": None,
        "activation_id": UUID(int=1).hex,
        "scope": "",
        "detail": {"attempt": 1, "crash_count": 0, "lease_until": "2026-11-20T12:00:07+00:00"},
    }
    assert [also["waits_for"] for also in found["also"]] == ["report"]


moments = st.integers(-100, 100_000).map(ago)
activations = st.builds(
    OpenActivation,
    id=st.uuids(),
    node_id=st.sampled_from(["search", "form", "gone"]),
    component=st.sampled_from(["LLM", "Begin"]),
    scope=st.sampled_from(["", "Iteration:A#0.3"]),
    status=st.sampled_from(
        [
            ActivationStatus.RUNNING,
            ActivationStatus.REPORTED,
            ActivationStatus.READY,
            ActivationStatus.QUEUED,
            ActivationStatus.WAITING,
        ]
    ),
    attempt=st.integers(0, 3),
    crash_count=st.integers(0, 3),
    worker=st.none() | st.just("host:1"),
    lease_until=st.none() | moments,
    not_before=moments,
    enqueued_at=st.none() | moments,
    created_at=moments,
    started_at=st.none() | moments,
    finished_at=st.none() | moments,
)
states = st.builds(
    WaitFacts,
    run_id=st.just(RUN_ID),
    status=st.sampled_from(RunStatus),
    rules_version=st.integers(1, REUSE_RULES_VERSION + 1),
    is_cancel_requested=st.booleans(),
    error=st.sampled_from(["", "No\nway."]),
    created_at=moments,
    finished_at=st.none() | moments,
    expires_at=st.none() | moments,
    now=st.just(NOON),
    open_activations=st.lists(activations, max_size=6, unique_by=lambda activation: activation.id),
    blocking_run=st.none() | st.builds(BlockingRun, run_id=st.uuids(), status=st.sampled_from(RunStatus)),
    last_probe_at=st.none() | moments,
    swept_since=st.none() | moments,
    swept_at=st.none() | moments,
)


@settings(max_examples=30)
@given(states, st.sampled_from([3.0, inf]))
def test_explanation_of_any_run_is_one_sentence_and_covers_every_activation(facts: WaitFacts, limit: float):
    found = explained(facts, limit)

    sentence = found.wait.sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    if not facts.status.is_over and facts.status is not RunStatus.QUEUED:
        of = [wait.of for wait in (found.wait, *found.also) if wait.of is not None]
        assert Counter(of) == Counter(facts.open_activations)
    assert (found.wait.kind is WaitsFor.OVER) == facts.status.is_over
    assert explanation_json(found, CANVAS)["sentence"] == sentence
