"""A walk over all pages: data for each of them, and an address or more for every page that the API serves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.pages.routes import CHAT_PAGE, PAGES
from tests.integration.api.browsers import share
from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, Client
from tests.pages.exported_runs import FORM, ROOT

if TYPE_CHECKING:
    from tests.pages.conftest import Deployment, Reader  # which makes the walk a fixture

QUERY = "My invoice is wrong: charged twice; no refund yet. Please help."


@dataclass(frozen=True, slots=True)
class Walk:
    """A tenant with an agent, a conversation and runs that ended differently, and the addresses that show them."""

    owner: Client
    runs: Mapping[str, str]
    addresses: Mapping[str, Sequence[str]]
    """Of each page, the addresses at which it is visited."""
    for_guests: frozenset[str]
    """The addresses that people without an account open."""

    def stops(self) -> Iterator[tuple[str, bool]]:
        """Yield every address, and whether a guest opens it: those come last."""
        addresses = [address for each in self.addresses.values() for address in each]
        yield from ((address, False) for address in addresses if address not in self.for_guests)
        yield from ((address, True) for address in addresses if address in self.for_guests)


def prepare_walk(server: Server) -> Walk:
    """Make a tenant whose pages all have something to show."""
    owner = server.client(kind="admin")
    example = json.loads((ROOT / "examples" / "support_triage.json").read_text(encoding="utf-8"))
    agent = owner.agent(example["dsl"], example["title"])
    started = owner.start(agent, QUERY)
    runs = {
        "succeeded": started["run_id"],
        "failed": owner.start(owner.agent(BROKEN, "Count the words"), "How many words?")["run_id"],
        "waiting": owner.start(owner.agent(FORM, "Return form"), "I want to return it.")["run_id"],
    }
    for status, run_id in runs.items():
        owner.wait_for(run_id, status)
    done = runs["succeeded"]
    steps = {row["node_id"]: row["id"] for row in owner.run(done)["activations"]}
    reply = steps["LLM:Reply"]
    conversation = started["session_id"]
    secret = share(owner, done)["secret"]
    published = owner.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()
    assert published["code"] == 0, published
    guest = server.guest(owner, agent)
    guest.http.close()
    in_talk = f"/s?view=talk#{secret}"
    in_chat = f"/chat/{agent}#{guest.token}"
    addresses = {
        "/": ["/"],
        "/login": ["/login"],
        "/runs": ["/runs", "/runs?status=failed"],
        "/runs/{run_id}": [
            *(f"/runs/{done}?view={view}" for view in ("graph", "time", "log", "talk")),
            *(f"/runs/{done}?step={reply}&tab={tab}" for tab in ("input", "model")),
            f"/runs/{runs['failed']}",
            f"/runs/{runs['waiting']}?view=talk",
        ],
        "/compare/{run_id}/{other_run_id}": [f"/compare/{done}/{runs['failed']}"],
        "/agents": ["/agents"],
        "/agents/{agent_id}": [f"/agents/{agent}"],
        "/agents/{agent_id}/versions": [f"/agents/{agent}/versions"],
        "/agents/{agent_id}/edit": [f"/agents/{agent}/edit", f"/agents/{agent}/edit?node=LLM:Reply"],
        "/agents/{agent_id}/play": [f"/agents/{agent}/play?conversation={conversation}"],
        "/conversations": ["/conversations"],
        "/conversations/{session_id}": [f"/conversations/{conversation}"],
        "/overview": ["/overview"],
        "/system": ["/system"],
        "/settings": ["/settings"],
        "/open": ["/open"],
        "/s": [in_talk],
        CHAT_PAGE: [in_chat],
    }
    assert addresses.keys() == {*PAGES, CHAT_PAGE}, "every page has a stop of the walk"
    return Walk(owner, runs, addresses, frozenset({in_talk, in_chat, "/login"}))


def visit_stops(
    walk: Walk, deployment: "Deployment", reader: "Reader", guest: "Reader"
) -> Iterator[tuple[str, "Reader"]]:
    """Visit every address with data; yield each with the reader that shows it, and check that nothing went wrong."""
    reader.sign_in(walk.owner)
    for address, is_guest in walk.stops():
        visitor = guest if is_guest else reader
        visitor.page.goto("about:blank")  # else an address that differs in its fragment alone is not loaded
        visitor.visit(address)
        if address == "/open":
            visitor.choose(deployment.file("failed_run"))
            visitor.page.get_by_test_id("run-header").wait_for()
        yield address, visitor
        visitor.check()
