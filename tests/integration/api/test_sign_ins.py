"""Sign-ins of browsers: their cookie, where it counts, requests of other sites, and tokens that only read."""

import asyncio
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.cookies import SimpleCookie
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
import structlog
from fastapi.routing import APIRoute
from sqlalchemy import text

from api.pages.page_files import find_build
from api.requests import auth
from api.requests.auth import RequestPrincipal
from api.requests.cookies import READING_METHODS, SignInPolicy
from api.requests.credential_checks import CredentialChecks
from api.requests.dependencies import ApiContext
from api.requests.scopes import needed_scope
from store.db.database import Database
from store.tenants import tenants, viewer_sessions
from store.tenants.scopes import TokenScope
from store.tenants.viewer_sessions import Credential
from tests.integration.api.browsers import (
    PAGE,
    SESSION,
    browser,
    cookie_of,
    depends_on,
    list_routes,
    share,
    signed_in,
    some_address,
    try_to_sign_in,
)
from tests.integration.api.conftest import NO_TLS, Server, start_server, with_settings
from tests.integration.api.talking import ECHO, FORM, Client, frames
from tests.integration.api.test_access import PROBED, ROUTES_OF_LINKS, WELL_KNOWN

WITH_COOKIE = re.compile(
    r"/api/v1/((runs|schedules)(/.*)?|agents/\{agent_id\}/runs|viewer/.*)|"
    r"/api/v1/(agents/\{agent_id\}/upload|agents/attachments/\{attachment_id\}/(download|preview)|"
    r"documents/artifact/\{name\}|components|agents/templates|agents/tags|audit)"
)
"""The routes on which a cookie counts."""
WITHOUT_COOKIE = {"POST /api/v1/viewer/session", "POST /api/v1/viewer/codes"}
"""A browser that signs in has no cookie yet, and codes are for programs."""
ROUTES = list_routes()
COOKIE_ROUTES = [(method, path) for method, path, route in ROUTES if depends_on(route, auth.identify)]
CHANGING_ROUTES = [(method, path) for method, path in COOKIE_ROUTES if method not in READING_METHODS]
WEBHOOKS = "/api/v1/agents/{agent_id}/webhook"
PUBLIC = {
    "/healthz", "/readyz", "/metrics", "/openapi.json", "/api/v1/viewer", "/api/v1/viewer/session", WEBHOOKS,
    *WELL_KNOWN, *PROBED,
}  # fmt: skip
OTHER_SITES = (
    {},
    {"X-Easel-Viewer": "1"},
    {"Sec-Fetch-Site": "same-origin"},
    {"X-Easel-Viewer": "1", "Sec-Fetch-Site": "cross-site"},
    {"X-Easel-Viewer": "1", "Sec-Fetch-Site": "same-site"},
    {"X-Easel-Viewer": "1", "Sec-Fetch-Site": "none"},
    {"X-Easel-Viewer": "1", "Origin": "https://evil.example"},
    {"X-Easel-Viewer": "1", "Origin": "null"},
    {"X-Easel-Viewer": "true", "Sec-Fetch-Site": "same-origin"},
)


def url_of(path: str) -> str:
    return re.sub(r"{\w+}", "0" * 31 + "7", path)


@pytest.fixture(scope="module")
def owner(workerless_server: Server) -> Iterator[Client]:
    """A tenant with an agent, a run and a share, for tests that change nothing."""
    client = workerless_server.client(kind="admin")
    run = client.start(client.agent(ECHO))
    share(client, run["run_id"])
    yield client
    client.http.close()


def rows_of(database: Database, client: Client) -> list[Any]:
    """Return what the tenant has, to see whether a request has changed something."""
    statements = (
        "select id, status, revision from runs where tenant_id = :tenant order by id",
        "select id, revoked_at from run_shares where tenant_id = :tenant order by id",
        "select id, ended_at from viewer_sessions where tenant_id = :tenant order by id",
        "select id, title, updated_at from canvases where tenant_id = :tenant order by id",
        "select count(*) from files where tenant_id = :tenant",
        "select count(*) from viewer_codes where tenant_id = :tenant",
    )
    with database.transaction() as tx:
        return [list(map(tuple, tx.rows(text(each), tenant=client.tenant_id))) for each in statements]


# -- signing in -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["api", "admin", "viewer"])
def test_token_of_a_tenant_signs_a_browser_in(workerless_server: Server, kind: str) -> None:
    client = workerless_server.client(kind=kind)

    with signed_in(workerless_server, client) as page:
        about = page.get("/api/v1/viewer").json()
        runs = page.get("/api/v1/runs")

    assert (about["signed_in"], about["kind"], about["user_id"]) == (True, kind, client.tenant_id.hex)
    assert about["tenant"]["id"] == client.tenant_id.hex
    assert (
        about["may"]
        == {
            "api": ["read", "change"],
            "admin": ["read", "change", "share", "administer"],
            "viewer": ["read"],
        }[kind]
    )
    assert (runs.status_code, runs.json()["runs"]) == (200, [])


def test_caller_without_a_sign_in_learns_the_release_only(workerless_server: Server) -> None:
    for headers in ({}, {"Cookie": "easel=unknown"}, {"Authorization": "Bearer unknown"}):
        about = httpx2.get(f"{workerless_server.url}/api/v1/viewer", headers=headers, verify=NO_TLS)

        assert about.status_code == 200
        assert about.json() == {
            "build": find_build(), "release": about.json()["release"], "base": "", "signed_in": False,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("base", "protocol", "name", "is_secure"),
    [
        ("", "http", "easel", False),
        ("", "https", "__Host-easel", True),
        ("/easel", "http", "easel", False),
        ("/easel", "https", "__Secure-easel", True),
    ],
)
def test_cookie_has_the_attributes_of_its_protocol_and_path(
    workerless_server: Server, base: str, protocol: str, name: str, is_secure: bool
) -> None:  # T012
    client = workerless_server.client()
    with start_server(with_settings(workerless_server.config, base_path=base)) as server:
        reply = try_to_sign_in(f"{server.url}{base}", {"X-Forwarded-Proto": protocol}, token=client.token)
        (made,) = SimpleCookie(reply.headers["set-cookie"]).values()
        headers = {"Cookie": f"{name}={made.value}", "X-Forwarded-Proto": protocol}
        runs = [httpx2.get(f"{server.url}{each}/api/v1/runs", headers=headers, verify=NO_TLS) for each in {"", base}]
        other = {**headers, "X-Forwarded-Proto": "https" if protocol == "http" else "http"}
        refused = httpx2.get(f"{server.url}/api/v1/runs", headers=other, verify=NO_TLS)

    assert made.key == name
    assert (made["httponly"], made["samesite"].lower(), made["domain"]) == (True, "strict", "")
    assert (bool(made["secure"]), made["path"], int(made["max-age"])) == (is_secure, f"{base}/", 7 * 86400)
    assert [each.status_code for each in runs] == [200] * len(runs)
    assert refused.status_code == 401


def test_wrong_revoked_and_expired_tokens_and_share_links_get_the_same_reply(workerless_server: Server) -> None:  # T011
    client = workerless_server.client()
    agent = client.agent(ECHO)
    link = workerless_server.guest(client, agent).token
    with workerless_server.database.transaction() as tx:
        revoked_id, revoked = tenants.create_token(tx, client.tenant_id, "x")
        tenants.revoke_token(tx, client.tenant_id, revoked_id)
        _, over = tenants.create_token(tx, client.tenant_id, "x", expires_in=timedelta(0))

    replies = [
        try_to_sign_in(workerless_server.url, token=token)
        for token in ("easel_wrong", revoked, over, link, "", "x" * 1000)
    ]

    assert {(each.status_code, each.text, each.headers.get("set-cookie")) for each in replies} == {
        (401, replies[0].text, None)
    }
    assert replies[0].json()["code"] == "unknown"


@pytest.mark.parametrize(
    "body", [{}, {"token": "a", "code": "b"}, {"token": 1}, {"password": "x"}, {"token": "x" * 1001}]
)
def test_sign_in_with_anything_but_one_secret_is_refused(workerless_server: Server, body: dict[str, Any]) -> None:
    reply = try_to_sign_in(workerless_server.url, **body)

    assert reply.status_code == 400
    assert reply.json()["details"]["field"] in ("token", "code", "password")


def test_eleventh_try_of_an_address_within_a_minute_is_refused(workerless_server: Server) -> None:  # T011
    client = workerless_server.client()
    here = {"X-Forwarded-For": some_address()}
    url = workerless_server.url

    tries = [try_to_sign_in(url, here, token="easel_wrong").status_code for _ in range(10)]
    refused = try_to_sign_in(url, here, token=client.token)
    elsewhere = try_to_sign_in(url, token=client.token)

    assert tries == [401] * 10
    assert (refused.status_code, refused.json()["code"], "set-cookie" in refused.headers) == (
        429,
        "too_many_tries",
        False,
    )
    assert int(refused.headers["retry-after"]) == refused.json()["details"]["retry_after"] > 0
    assert f"{refused.headers['retry-after']} s" in refused.json()["message"]
    assert elsewhere.status_code == 204


def test_sign_in_works_without_redis(workerless_server: Server) -> None:
    client = workerless_server.client()
    with start_server(with_settings(workerless_server.config, redis_url="redis://127.0.0.1:1/0")) as server:
        reply = try_to_sign_in(server.url, token=client.token)

    assert reply.status_code == 204


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "", "Origin": "https://evil.example"},
    ],
)
def test_other_site_cannot_sign_a_browser_in(workerless_server: Server, headers: dict[str, str]) -> None:
    client = workerless_server.client()

    reply = try_to_sign_in(workerless_server.url, headers, token=client.token)

    assert (reply.status_code, reply.json()["code"]) == (403, "cross_site")
    assert "set-cookie" not in reply.headers


def test_second_sign_in_of_a_browser_ends_the_first(workerless_server: Server) -> None:
    client, other = workerless_server.client(), workerless_server.client()
    first = cookie_of(workerless_server.url, token=client.token)

    reply = try_to_sign_in(workerless_server.url, {"Cookie": f"easel={first}"}, token=other.token)

    with browser(workerless_server.url, first) as page:
        assert page.get("/api/v1/runs").status_code == 401
    assert reply.cookies["easel"] != first


# -- codes ------------------------------------------------------------------------------------------------------------
def test_code_signs_in_once_like_its_token(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    made = client.http.post("/api/v1/viewer/codes")
    code = made.json()["code"]

    cookie = cookie_of(workerless_server.url, code=code)
    again = try_to_sign_in(workerless_server.url, code=code)

    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    with browser(workerless_server.url, cookie) as page:
        assert page.get("/api/v1/viewer").json()["kind"] == "admin"
    assert (again.status_code, again.json()["code"]) == (401, "unknown")


def test_code_is_over_after_ten_minutes_and_with_its_token(workerless_server: Server) -> None:
    client = workerless_server.client()
    old, orphan = (client.http.post("/api/v1/viewer/codes").json()["code"] for _ in range(2))
    with workerless_server.database.transaction() as tx:
        shift = "update viewer_codes set expires_at = expires_at - interval '10 minutes' where hash = :hash"
        tx.execute(text(shift), hash=viewer_sessions.hash_of(old))

    late = try_to_sign_in(workerless_server.url, code=old)
    revoke_tokens(workerless_server, client)
    orphaned = try_to_sign_in(workerless_server.url, code=orphan)

    assert (late.status_code, orphaned.status_code) == (401, 401)


def test_concurrent_exchanges_of_one_code_make_one_sign_in(workerless_server: Server) -> None:
    client = workerless_server.client()
    code = client.http.post("/api/v1/viewer/codes").json()["code"]

    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: try_to_sign_in(workerless_server.url, code=code).status_code, range(8)))

    assert sorted(replies) == [204, *[401] * 7]
    assert len(client.http.get("/api/v1/viewer/sessions_of_mine").json()["sessions"]) == 1


def test_code_needs_a_token_that_may_change_something(workerless_server: Server) -> None:
    reader = workerless_server.client(kind="viewer")
    with signed_in(workerless_server, workerless_server.client()) as page:
        by_cookie = page.post("/api/v1/viewer/codes")

    by_reader = reader.http.post("/api/v1/viewer/codes")

    assert by_cookie.status_code == 401
    assert (by_reader.status_code, by_reader.json()["code"]) == (403, "read_only")


# -- the end of a sign-in ---------------------------------------------------------------------------------------------
def revoke_tokens(server: Server, client: Client) -> None:
    with server.database.transaction() as tx:
        for token in tenants.list_tokens(tx, client.tenant_id):
            tenants.revoke_token(tx, client.tenant_id, token.id)


def test_sign_in_ends_with_its_token(workerless_server: Server) -> None:  # T014
    client = workerless_server.client()
    with signed_in(workerless_server, client) as page:
        before = page.get("/api/v1/runs").status_code
        revoke_tokens(workerless_server, client)

        after = page.get("/api/v1/runs")

    assert (before, after.status_code, after.json()["code"]) == (200, 401, "unauthorized")


def test_signing_out_ends_the_sign_in_and_clears_the_cookie(workerless_server: Server) -> None:  # T015
    with signed_in(workerless_server, workerless_server.client()) as page:
        reply = page.delete(SESSION)
        again = page.delete(SESSION)
        after = page.get("/api/v1/runs")

    (cleared,) = SimpleCookie(reply.headers["set-cookie"]).values()
    assert (reply.status_code, again.status_code, after.status_code) == (204, 204, 401)
    assert (cleared.value, cleared["max-age"], cleared["path"]) == ("", "0", "/")


def test_signing_out_without_a_cookie_is_unauthorized(workerless_server: Server) -> None:
    assert workerless_server.client().http.delete(SESSION, headers=PAGE).status_code == 401


@pytest.mark.parametrize(
    "change",
    [
        "last_seen_at = now() - interval '12 hours 1 minute'",
        "expires_at = now()",
        "ended_at = now()",
    ],
)
def test_sign_in_is_over_when_it_is_idle_old_or_ended(workerless_server: Server, change: str) -> None:
    client = workerless_server.client()
    with signed_in(workerless_server, client) as page, workerless_server.database.transaction() as tx:
        tx.execute(text(f"update viewer_sessions set {change} where tenant_id = :tenant"), tenant=client.tenant_id)
        tx.commit()

        assert page.get("/api/v1/runs").status_code == 401


def test_sign_in_lasts_seven_days_and_stays_while_it_is_used(workerless_server: Server) -> None:
    client = workerless_server.client()
    read = text("select expires_at - created_at, now() - last_seen_at from viewer_sessions where tenant_id = :tenant")
    shift = text("update viewer_sessions set last_seen_at = now() - interval '11 hours' where tenant_id = :tenant")
    with signed_in(workerless_server, client) as page:
        with workerless_server.database.transaction() as tx:
            tx.execute(shift, tenant=client.tenant_id)

        used = page.get("/api/v1/runs")

    with workerless_server.database.transaction() as tx:
        ((lifetime, idle),) = tx.rows(read, tenant=client.tenant_id)
    assert used.status_code == 200
    assert lifetime == timedelta(days=7)
    assert idle < timedelta(minutes=1)


def test_sign_ins_of_a_token_are_listed_in_pages_and_can_be_ended(workerless_server: Server) -> None:
    client = workerless_server.client()
    cookies = [
        try_to_sign_in(workerless_server.url, {"User-Agent": f"browser {number}"}, token=client.token).cookies["easel"]
        for number in range(3)
    ]
    with browser(workerless_server.url, cookies[0]) as page:
        first = page.get("/api/v1/viewer/sessions_of_mine", params={"limit": 2}).json()
        second = page.get("/api/v1/viewer/sessions_of_mine", params={"before": first["next"]}).json()
        ended = page.delete(f"/api/v1/viewer/sessions_of_mine/{first['sessions'][0]['id']}")
        again = page.delete(f"/api/v1/viewer/sessions_of_mine/{first['sessions'][0]['id']}")

    with browser(workerless_server.url, cookies[2]) as page:
        assert page.get("/api/v1/runs").status_code == 401
    rows = [*first["sessions"], *second["sessions"]]
    assert [row["agent"] for row in rows] == ["browser 2", "browser 1", "browser 0"]
    assert [row["is_current"] for row in rows] == [False, False, True]
    assert (second["next"], ended.status_code, again.status_code) == (None, 204, 404)


def test_sign_ins_of_another_token_of_the_tenant_are_not_listed_or_ended(workerless_server: Server) -> None:
    client = workerless_server.client()
    with workerless_server.database.transaction() as tx:
        _, other = tenants.create_token(tx, client.tenant_id, "other")
    with signed_in(workerless_server, client):
        (row,) = client.http.get("/api/v1/viewer/sessions_of_mine").json()["sessions"]
    colleague = workerless_server.client_of(client.tenant_id, other)

    assert colleague.http.get("/api/v1/viewer/sessions_of_mine").json()["sessions"] == []
    assert colleague.http.delete(f"/api/v1/viewer/sessions_of_mine/{row['id']}").status_code == 404


@pytest.mark.parametrize("ends_by", ["sign out", "revoked token"])
def test_stream_of_events_ends_with_its_sign_in(workerless_server: Server, ends_by: str) -> None:  # T014, T015
    client = workerless_server.client()
    run = client.start(client.agent(ECHO))["run_id"]
    with (
        signed_in(workerless_server, client) as page,
        page.stream("GET", f"/api/v1/runs/{run}/events", headers={"Accept": "text/event-stream"}) as reply,
    ):
        lines = reply.iter_lines()
        next(lines)
        if ends_by == "sign out":
            page.delete(SESSION)
        else:
            revoke_tokens(workerless_server, client)
        last = list(frames(lines))[-1].data

    assert (last["code"], last["reason"], last["run_id"]) == (401, "signed_out", run)


def test_ended_credentials_are_found_with_their_reasons(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run = client.start(client.agent(ECHO))["run_id"]
    shares = [share(client, run) for _ in range(2)]
    cookies = [cookie_of(workerless_server.url, **secret) for secret in (
        {"token": client.token}, {"token": client.token}, *({"share": each["secret"]} for each in shares)
    )]  # fmt: skip
    with browser(workerless_server.url, cookies[1]) as page:
        page.delete(SESSION)
    client.http.delete(f"/api/v1/runs/{run}/shares/{shares[1]['id']}")

    with workerless_server.database.transaction() as tx:
        read = text("select id from viewer_sessions where tenant_id = :tenant order by id")
        sessions = [Credential(session_id=row[0]) for row in tx.rows(read, tenant=client.tenant_id)]
        found = tenants.find_principal(tx, client.token)
        assert found is not None
        token = Credential(found.token_id)
        ended = viewer_sessions.find_ended(tx, [token, *sessions])
        tenants.revoke_token(tx, client.tenant_id, found.token_id)
        later = viewer_sessions.find_ended(tx, [token, *sessions])

    assert ended == {sessions[1]: "signed_out", sessions[3]: "share_revoked"}
    assert later == {**ended, token: "signed_out", sessions[0]: "signed_out"}


def test_caller_with_an_open_stream_is_sent_away_with_a_reason(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run = client.start(client.agent(ECHO))["run_id"]
    made = share(client, run)
    cookie = cookie_of(workerless_server.url, share=made["secret"])
    with workerless_server.database.statements() as tx:
        found, token = viewer_sessions.find(tx, cookie), tenants.find_principal(tx, client.token)
    assert found is not None
    assert token is not None
    visitor = RequestPrincipal(client.tenant_id, "", "share", None, share=found.share, session_id=found.id)
    owner = RequestPrincipal(client.tenant_id, "", "admin", token.token_id)

    def ends(policy: SignInPolicy) -> list[str | None]:
        context = cast(
            "ApiContext",
            SimpleNamespace(database=workerless_server.database, sign_ins=policy, credential_checks=CredentialChecks()),
        )
        return [asyncio.run(auth.find_end(context, each)) for each in (visitor, owner)]

    before, off = ends(SignInPolicy()), ends(SignInPolicy(has_shares=False))
    client.http.delete(f"/api/v1/runs/{run}/shares/{made['id']}")
    revoked = ends(SignInPolicy())
    revoke_tokens(workerless_server, client)

    assert (before, off, revoked) == ([None, None], ["share_revoked", None], ["share_revoked", None])
    assert ends(SignInPolicy()) == ["share_revoked", "signed_out"]


# -- where the cookie counts ------------------------------------------------------------------------------------------
def test_cookie_counts_exactly_on_the_routes_for_pages() -> None:  # T017
    expected = {
        f"{method} {path}"
        for method, path, _ in ROUTES
        if WITH_COOKIE.fullmatch(path) and f"{method} {path}" not in WITHOUT_COOKIE and path != SESSION
    }

    assert {f"{method} {path}" for method, path in COOKIE_ROUTES} == expected


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in ROUTES if path not in PUBLIC])
def test_cookie_is_ignored_on_all_other_routes(
    workerless_server: Server, owner: Client, method: str, path: str
) -> None:  # T017
    if path.startswith(WEBHOOKS):
        pytest.skip("a webhook has its own authentication")
    with browser(workerless_server.url, cookie_of(workerless_server.url, token=owner.token)) as page:
        reply = page.request(method, url_of(path))

    is_refused = reply.status_code == 401 or (path in ROUTES_OF_LINKS and reply.json()["code"] == 102)
    assert is_refused != ((method, path) in COOKIE_ROUTES)


def test_cookie_is_ignored_by_the_mcp_server(workerless_server: Server, owner: Client) -> None:  # T017
    with signed_in(workerless_server, owner) as page:
        assert page.post("/mcp", json={}).status_code == 401


@pytest.mark.parametrize("headers", OTHER_SITES, ids=str)
@pytest.mark.parametrize(("method", "path"), [*CHANGING_ROUTES, ("POST", SESSION), ("DELETE", SESSION)])
def test_request_of_another_site_is_refused_and_changes_nothing(
    workerless_server: Server, owner: Client, shared_cookie: str, method: str, path: str, headers: dict[str, str]
) -> None:  # T016
    run = owner.http.get("/api/v1/runs").json()["runs"][-1]
    ids = {"run_id": run["id"], "agent_id": run["agent_id"]}
    url = re.sub(r"{(\w+)}", lambda name: ids.get(name[1], "0" * 31 + "7"), path)
    body = {"ids": [run["id"]], "query": "x"} if path.endswith("cancel") else {}
    before = rows_of(workerless_server.database, owner)

    with browser(workerless_server.url, shared_cookie, headers=headers) as page:
        reply = page.request(method, url, json=body)

    assert (reply.status_code, reply.json()["code"]) in ((403, "cross_site"), (403, 103))
    assert rows_of(workerless_server.database, owner) == before


@pytest.fixture(scope="module")
def shared_cookie(workerless_server: Server, owner: Client) -> str:
    """The cookie of one sign-in for many requests."""
    return cookie_of(workerless_server.url, token=owner.token)


@pytest.mark.parametrize(
    "headers", [{}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}]
)
def test_request_that_reads_needs_no_origin(
    workerless_server: Server, shared_cookie: str, headers: dict[str, str]
) -> None:  # T016
    with browser(workerless_server.url, shared_cookie, headers=headers) as page:
        assert page.get("/api/v1/runs").status_code == 200


def test_page_without_fetch_metadata_changes_something_by_its_origin(
    workerless_server: Server, shared_cookie: str, owner: Client
) -> None:
    headers = {"X-Easel-Viewer": "1", "Origin": workerless_server.url}
    run = owner.start(owner.http.get("/api/v1/runs").json()["runs"][-1]["agent_id"])["run_id"]

    with browser(workerless_server.url, shared_cookie, headers=headers) as page:
        reply = page.post(f"/api/v1/runs/{run}/cancel")

    assert (reply.status_code, reply.json()["status"]) == (200, "cancelled")


def test_page_behind_a_proxy_with_a_login_of_its_own_is_known_by_its_cookie(
    workerless_server: Server, shared_cookie: str
) -> None:
    with browser(workerless_server.url, shared_cookie) as page:
        basic = page.get("/api/v1/runs", headers={"Authorization": "Basic eDp5"})
        bearer = page.get("/api/v1/runs", headers={"Authorization": "Bearer unknown"})

    assert (basic.status_code, bearer.status_code) == (200, 401)


def test_start_with_a_cookie_takes_an_idempotency_key(client: Client, server: Server) -> None:
    run = client.start(client.agent(FORM))["run_id"]
    client.wait_for(run, "waiting")
    with signed_in(server, client) as page:
        replies = [
            page.post(
                f"/api/v1/runs/{run}/resume", json={"inputs": {"name": "Ada"}}, headers={"Idempotency-Key": "one"}
            )
            for _ in range(2)
        ]

    assert [each.status_code for each in replies] == [202, 202]
    assert client.wait_for(run, "succeeded")["answer"] == "Hello Ada"


def test_signed_in_tenant_gets_404_for_what_another_one_has(workerless_server: Server, owner: Client) -> None:  # T019
    run = owner.http.get("/api/v1/runs").json()["runs"][-1]
    (theirs,) = owner.http.get(f"/api/v1/runs/{run['id']}/shares").json()["shares"]
    with signed_in(workerless_server, workerless_server.client(kind="admin")) as page:
        for method, path in (
            ("GET", f"/runs/{run['id']}"),
            ("GET", f"/runs/{run['id']}/events"),
            ("GET", f"/runs/{run['id']}/shares"),
            ("POST", f"/runs/{run['id']}/shares"),
            ("DELETE", f"/runs/{run['id']}/shares/{theirs['id']}"),
            ("POST", f"/runs/{run['id']}/cancel"),
            ("GET", f"/viewer/agents/{run['agent_id']}"),
            ("GET", f"/viewer/conversations/{run['session_id']}"),
        ):
            reply = page.request(method, f"/api/v1{path}")
            assert (reply.status_code, reply.json()["code"]) == (404, "not_found"), path
            assert "You said" not in reply.text


# -- tokens that only read --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("method", "path", "route"), [each for each in ROUTES if each[1] not in PUBLIC])
def test_token_of_kind_viewer_reads_and_changes_nothing(
    workerless_server: Server, owner: Client, reader: Client, method: str, path: str, route: APIRoute
) -> None:  # T018
    if path.startswith(WEBHOOKS):
        pytest.skip("a webhook has its own authentication")
    before = rows_of(workerless_server.database, owner)

    reply = reader.http.request(method, url_of(path), json=None if method in READING_METHODS else {})

    if needed_scope(route) is TokenScope.READ:
        assert method in READING_METHODS
        assert reply.status_code not in (401, 403)
    else:
        assert reply.status_code == 403
        assert "read_only" in reply.text or reply.json()["code"] in (103, "not_allowed")
    assert rows_of(workerless_server.database, owner) == before


@pytest.mark.parametrize(("method", "path"), CHANGING_ROUTES)
def test_sign_in_of_kind_viewer_changes_nothing(
    workerless_server: Server, owner: Client, reader: Client, method: str, path: str
) -> None:  # T018
    cookie = cookie_of(workerless_server.url, token=reader.token)

    with browser(workerless_server.url, cookie) as page:
        reply = page.request(method, url_of(path), json={})

    assert (reply.status_code, reply.json()["code"]) in ((403, "read_only"), (403, 103))


@pytest.fixture(scope="module")
def reader(workerless_server: Server, owner: Client) -> Client:
    """A client of the same tenant that may only read."""
    with workerless_server.database.transaction() as tx:
        _, token = tenants.create_token(tx, owner.tenant_id, "reader", "viewer")
    return workerless_server.client_of(owner.tenant_id, token)


def test_reader_sees_a_run_and_may_do_nothing_with_it(owner: Client, reader: Client) -> None:
    run_id = owner.http.get("/api/v1/runs").json()["runs"][-1]["id"]

    run = reader.run(run_id)

    assert set(run["may"].values()) == {False}
    assert run["request"]["query"] == "hi"


# -- secrets ----------------------------------------------------------------------------------------------------------
def test_secrets_are_in_no_row_and_in_no_log(workerless_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = workerless_server.client(kind="admin")
    run = client.start(client.agent(ECHO))["run_id"]
    with caplog.at_level(logging.DEBUG), structlog.testing.capture_logs() as lines:
        code = client.http.post("/api/v1/viewer/codes").json()["code"]
        key = {"Idempotency-Key": "a key"}
        made, repeated = (client.http.post(f"/api/v1/runs/{run}/shares", json={}, headers=key).json() for _ in range(2))
        cookies = [
            cookie_of(workerless_server.url, **secret)
            for secret in ({"token": client.token}, {"code": code}, {"share": made["secret"]})
        ]
        try_to_sign_in(workerless_server.url, code=code)
        for cookie in cookies:
            with browser(workerless_server.url, cookie) as page:
                page.get(f"/api/v1/runs/{run}")
                page.post(f"/api/v1/runs/{run}/nothing")
    secrets = [client.token, code, made["secret"], *cookies]

    stored = dump_of(workerless_server.database)
    # the client of the test logs what it sends
    logged = "\n".join(
        [*(record.getMessage() for record in caplog.records if not record.name.startswith("http")), *map(str, lines)]
    )

    assert made["secret"] == repeated["secret"]
    assert made["id"] == repeated["id"]
    assert client.tenant_id.hex in stored.replace("-", "")
    for secret in secrets:
        assert secret not in stored
        assert secret not in logged


def dump_of(database: Database) -> str:
    """Return every row of the database as text."""
    with database.transaction() as tx:
        tables = [name for (name,) in tx.rows(text("select tablename from pg_tables where schemaname = 'public'"))]
        return "\n".join(
            str(row[0]) for table in tables for row in tx.rows(text(f"select cast(t as text) from {table} t"))
        )


# -- settings ---------------------------------------------------------------------------------------------------------
def test_viewer_that_is_off_has_no_sign_ins_and_leaves_the_rest(workerless_server: Server) -> None:  # T009
    client = workerless_server.client(kind="admin")
    cookie = cookie_of(workerless_server.url, token=client.token)
    run = client.start(client.agent(ECHO))["run_id"]
    with start_server(with_settings(workerless_server.config, viewer=False)) as server:
        off = server.client_of(client.tenant_id, client.token)
        statuses = {
            f"{method} {path}": off.http.request(method, path).status_code
            for method, path in (
                ("GET", "/api/v1/viewer"),
                ("POST", SESSION),
                ("DELETE", SESSION),
                ("POST", "/api/v1/viewer/codes"),
                ("GET", "/api/v1/viewer/sessions_of_mine"),
            )
        }
        with browser(server.url, cookie) as page:
            by_cookie = page.get("/api/v1/runs").status_code
        by_token = off.http.get("/api/v1/viewer/system").status_code
        shared = off.http.post(f"/api/v1/runs/{run}/shares", json={})

    assert set(statuses.values()) == {404}
    assert (by_cookie, by_token) == (401, 200)
    assert (shared.status_code, shared.json()["code"]) == (403, "not_allowed")
