"""How the user of a share link continues a session: read it, follow its run again, cancel it."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.talking import (
    BROKEN,
    ECHO,
    FORM,
    Client,
    Frame,
    canvas,
    eventually,
    frames,
    message,
    text_of,
)

TWO_ANSWERS = canvas(
    ("begin", "Begin", {}, ["Message:0"]),
    ("Message:0", "Message", message("First."), ["UserFillUp:0"]),
    ("UserFillUp:0", "UserFillUp", {"inputs": {"name": {"type": "line", "name": "Name"}}}, ["Message:1"]),
    ("Message:1", "Message", message("Hello {UserFillUp:0@name}"), []),
)
STRICT = {"X-Http-Status": "strict"}


class Guest:
    """The user of a share link of one agent."""

    def __init__(self, client: Client, agent: str) -> None:
        self.client = client
        self.http = client.http
        self.path = f"/api/v1/agentbots/{agent}"

    def chat(self, query: str | None = "hi", **body: Any) -> dict[str, Any]:
        sent = {"query": query, "stream": False, **body}
        reply = self.http.post(f"{self.path}/completions", json=sent)
        return {"run_id": reply.headers["x-run-id"], "session_id": reply.headers["x-session-id"], "body": reply.json()}

    def session(self, session_id: str) -> dict[str, Any]:
        reply = self.http.get(f"{self.path}/sessions/{session_id}", headers=STRICT)
        assert reply.status_code == 200, reply.text
        return reply.json()["data"]

    def follow(self, run_id: str, after: str) -> list[Frame]:
        with self.http.stream("GET", f"{self.path}/runs/{run_id}/events", params={"after": after}) as stream:
            assert stream.status_code == 200
            return list(frames(stream.iter_lines()))


@contextmanager
def shared(server: Server, owner: Client, dsl: Any, title: str = "agent") -> Generator[Guest]:
    """Publish an agent; yield the user of a new share link."""
    agent = owner.agent(dsl, title)
    owner.http.post(f"/api/v1/agents/{agent}/publish", json={})
    client = server.guest(owner, agent)
    yield Guest(client, agent)
    client.http.close()


@pytest.fixture
def echo(server: Server, client: Client) -> Iterator[Guest]:
    with shared(server, client, ECHO) as guest:
        yield guest


def test_session_has_its_turns_with_what_was_asked_and_answered(echo: Guest) -> None:
    first = echo.chat("one")
    echo.chat("two", session_id=first["session_id"])

    session = echo.session(first["session_id"])

    assert [(turn["question"], [answer["content"] for answer in turn["answers"]]) for turn in session["turns"]] == [
        ("one", ["You said: one"]),
        ("two", ["You said: two"]),
    ]
    assert {turn["status"] for turn in session["turns"]} == {"succeeded"}
    assert (session["run"], session["is_cut"], session["prologue"]) == (None, False, "Hello, I repeat.")


def test_session_with_a_form_has_each_answer_in_the_turn_in_which_it_was_written(server: Server, client: Client):
    with shared(server, client, TWO_ANSWERS) as guest:
        first = guest.chat("one")
        open_session = guest.session(first["session_id"])
        replayed = guest.follow(first["run_id"], open_session["run"]["after"])
        guest.chat(None, session_id=first["session_id"], inputs={"name": {"type": "line", "value": "Ada"}})
        session = guest.session(first["session_id"])

    assert open_session["run"] == {"id": first["run_id"], "status": "waiting", "after": "0"}
    assert [turn["answers"] for turn in open_session["turns"]] == [[]]
    assert text_of(replayed) == "First."
    assert replayed[-2].data["event"] == "user_inputs"
    assert replayed[-1].data == "[DONE]"
    assert [[answer["content"] for answer in turn["answers"]] for turn in session["turns"]] == [
        ["First."],
        ["Hello Ada"],
    ]
    assert session["run"] is None


def test_current_turn_of_a_run_is_followed_without_the_turns_before_it(server: Server, client: Client) -> None:
    asking_twice = canvas(
        ("begin", "Begin", {}, ["Message:0"]),
        ("Message:0", "Message", message("First."), ["UserFillUp:0"]),
        ("UserFillUp:0", "UserFillUp", {"inputs": {"name": {"type": "line", "name": "Name"}}}, ["Message:1"]),
        ("Message:1", "Message", message("Hello {UserFillUp:0@name}"), ["UserFillUp:1"]),
        ("UserFillUp:1", "UserFillUp", {"inputs": {"age": {"type": "line", "name": "Age"}}}, ["Message:2"]),
        ("Message:2", "Message", message("End"), []),
    )
    with shared(server, client, asking_twice) as guest:
        first = guest.chat("one")
        guest.chat(None, session_id=first["session_id"], inputs={"name": {"type": "line", "value": "Ada"}})
        session = guest.session(first["session_id"])
        replayed = guest.follow(first["run_id"], session["run"]["after"])

    assert [[answer["content"] for answer in turn["answers"]] for turn in session["turns"]] == [["First."], []]
    assert text_of(replayed) == "Hello Ada"


def test_failed_turn_of_a_session_has_its_error(server: Server, client: Client) -> None:
    with shared(server, client, BROKEN) as guest:
        failed = guest.chat("one")
        (turn,) = guest.session(failed["session_id"])["turns"]

    assert turn["status"] == "failed"
    assert "env.nothing" in turn["error"]


def test_cancel_ends_the_run_of_a_session(server: Server, client: Client) -> None:
    with shared(server, client, FORM) as guest:
        waiting, other = guest.chat("one"), guest.chat("two")
        reply = guest.http.post(f"{guest.path}/cancel", json={"session_id": waiting["session_id"]})
        by_run = guest.http.post(f"{guest.path}/cancel", json={"run_id": other["run_id"]})
        again = guest.http.post(f"{guest.path}/cancel", json={"run_id": other["run_id"]})
        nothing = guest.http.post(f"{guest.path}/cancel", json={})

    assert [each.json()["data"] for each in (reply, by_run, again)] == [True] * 3
    for started in (waiting, other):
        eventually(lambda of=started: client.run(of["run_id"])["status"], lambda status: status == "cancelled")
    assert nothing.status_code == 400


def test_sessions_and_runs_that_began_otherwise_look_as_if_they_did_not_exist(server: Server, client: Client) -> None:
    with shared(server, client, FORM) as guest, shared(server, client, ECHO, "other") as other:
        agent = guest.path.rsplit("/", 1)[1]
        second = Guest(server.guest(client, agent), agent)
        own, neighbours = client.start(agent, "secret"), second.chat("secret")
        unknown = {"session_id": "0" * 32, "run_id": "0" * 32}

        def replies(path: str, ids: dict[str, Any]) -> list[Any]:
            asked = (
                guest.http.get(f"{path}/sessions/{ids['session_id']}", headers=STRICT),
                guest.http.get(f"{path}/runs/{ids['run_id']}/events", headers=STRICT),
                guest.http.post(f"{path}/cancel", json={"session_id": ids["session_id"]}, headers=STRICT),
                guest.http.post(f"{path}/cancel", json={"run_id": ids["run_id"]}, headers=STRICT),
            )
            return [(reply.status_code, reply.json()["message"]) for reply in asked]

        expected = replies(guest.path, unknown)
        assert {status for status, _ in expected} == {404}
        assert replies(guest.path, own) == expected
        assert replies(guest.path, neighbours) == expected
        assert {message for _, message in replies(other.path, neighbours)} == {
            f"Can't find agent by ID: {other.path.rsplit('/', 1)[1]}"
        }
        assert client.run(own["run_id"])["status"] != "cancelled"
        assert client.run(neighbours["run_id"])["status"] == "waiting"
        second.http.close()


def test_events_of_a_run_continue_after_a_position(echo: Guest) -> None:
    started = echo.chat("one")
    whole = echo.follow(started["run_id"], "0")
    middle = whole[2].id

    rest = echo.follow(started["run_id"], middle)

    assert [frame.data for frame in rest] == [frame.data for frame in whole[3:]]
