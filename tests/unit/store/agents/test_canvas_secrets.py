"""Secrets of canvases: sealed where they are stored, masked where they are shown, opened where they are used."""

import json
from typing import Any
from uuid import UUID

import pytest

from canvas.document import parsing, references
from canvas.document.secret_fields import SecretDeclaration, SecretPosition
from canvas.errors import InvalidCanvas
from components import registry
from components.tools import TOOLS
from store.agents.canvas_secrets import CanvasSecrets, holds_sealed, is_mask
from store.primitives.encryption import CannotUnseal, EncryptionKey

KEY = EncryptionKey.from_secret("a secret that is long")
TENANT, CANVAS = UUID(int=1), UUID(int=2)
SECRETS = {
    "tavily": "tvly-1234567890",
    "nested": "tvly-of-the-agent",
    "deep": "tvly-of-the-sub-agent",
    "sql": "p@ssw0rd",
    "token": "hook-token",
    "basic": "hook-password",
    "jwt": "hook-jwt",
    "hmac": "hook-hmac",
    "header": "Bearer of-invoke",
    "proxy": "http://ann:of-the-proxy@proxy:3128",
    "mcp": "Bearer of-mcp",
}


def node(component: str, **params: Any) -> dict[str, Any]:
    return {"obj": {"component_name": component, "params": params}, "downstream": [], "upstream": []}


def tool(key: str, component: str = "TavilySearch") -> dict[str, Any]:
    return {"component_name": component, "name": "t", "params": {"api_key": SECRETS[key]}}


def document() -> dict[str, Any]:
    security = {
        "auth_type": "token",
        "token": {"token_header": "X-T", "token_value": SECRETS["token"]},
        "basic_auth": {"username": "ann", "password": SECRETS["basic"]},
        "jwt": {"algorithm": "HS256", "secret": SECRETS["jwt"]},
        "hmac": {"header": "X-H", "secret": SECRETS["hmac"]},
    }
    sub_agent = {"component_name": "Agent", "name": "sub", "params": {"tools": [tool("deep", "tavily_search")]}}
    search = {"api_key": SECRETS["tavily"], "query": "{sys.query}"}
    return {
        "components": {
            "begin": node("Begin", mode="Webhook", security=security),
            "Tavily:0": node("tavily", **search),
            "ExeSQL:0": node("ExeSQL", password=SECRETS["sql"], host="db", username="ann"),
            "Agent:0": node(
                "Agent", tools=[tool("nested"), sub_agent], custom_header={"Authorization": SECRETS["mcp"], "X-A": "b"}
            ),
            "Invoke:0": node(
                "Invoke",
                headers=json.dumps({"Authorization": SECRETS["header"], "Accept": "text/html"}),
                proxy=SECRETS["proxy"],
            ),
        },
        "graph": {"nodes": [{"id": "Tavily:0", "data": {"label": "TavilySearch", "name": "Search", "form": search}}]},
    }


def secrets_of(key: EncryptionKey | None = KEY, tenant_id: UUID = TENANT, canvas_id: UUID = CANVAS) -> CanvasSecrets:
    return CanvasSecrets.for_canvas(key, tenant_id, canvas_id, registry.secret_fields)


def test_stored_and_masked_documents_contain_no_declared_secret():
    stored = secrets_of().seal_document(document())
    shown = secrets_of().mask_document(stored)

    for secret in SECRETS.values():
        assert secret in json.dumps(document())
        assert secret not in json.dumps(stored)
        assert secret not in json.dumps(shown)
    assert "easel-sealed" not in json.dumps(shown)
    assert shown["components"]["ExeSQL:0"]["obj"]["params"]["host"] == "db"
    assert json.loads(shown["components"]["Invoke:0"]["obj"]["params"]["headers"])["Accept"] == "text/html"


def test_opening_a_sealed_document_returns_the_original():
    assert secrets_of().open_document(secrets_of().seal_document(document())) == document()


def test_sealed_document_passes_the_same_checks_as_the_original():
    def findings(written: dict[str, Any]) -> list[Any]:
        return registry.check(parsing.parse(written))

    assert findings(secrets_of().seal_document(document())) == findings(document())
    assert findings(secrets_of().mask_document(secrets_of().seal_document(document()))) == findings(document())


@pytest.mark.parametrize("name", sorted({tool.name for tool in TOOLS.values() if tool.params.secrets}))
def test_every_secret_of_every_tool_is_sealed_and_its_node_can_still_be_checked(name: str):
    params = dict.fromkeys(next(tool for tool in TOOLS.values() if tool.name == name).params.secrets, "key-1234567890")
    written = {"components": {"begin": node("Begin"), f"{name}:0": node(name, **params)}, "graph": {"nodes": []}}
    stored = secrets_of().seal_document(written)

    assert "key-1234567890" not in json.dumps(stored)
    assert secrets_of().open_document(stored) == written
    assert registry.check(parsing.parse(stored)) == registry.check(parsing.parse(written))


def test_sealing_the_same_document_twice_gives_the_same_text():
    assert json.dumps(secrets_of().seal_document(document())) == json.dumps(secrets_of().seal_document(document()))


def test_saved_document_with_masks_keeps_its_secrets_after_nodes_move():
    stored = secrets_of().seal_document(document())
    masked = secrets_of().mask_document(stored)
    masked["components"]["Tavily:moved"] = masked["components"].pop("Tavily:0")
    masked["components"]["Agent:0"]["obj"]["params"]["tools"].reverse()
    masked["components"]["ExeSQL:0"]["obj"]["params"]["password"] = "changed"

    opened = secrets_of().open_document(secrets_of().seal_document(masked, lambda: [stored]))["components"]

    assert opened["Tavily:moved"]["obj"]["params"]["api_key"] == SECRETS["tavily"]
    sub_agent, nested = opened["Agent:0"]["obj"]["params"]["tools"]
    assert nested["params"]["api_key"] == SECRETS["nested"]
    assert sub_agent["params"]["tools"][0]["params"]["api_key"] == SECRETS["deep"]
    assert opened["ExeSQL:0"]["obj"]["params"]["password"] == "changed"
    assert opened["Invoke:0"] == document()["components"]["Invoke:0"]


def test_mask_of_another_canvas_or_parameter_is_refused():
    elsewhere = secrets_of(canvas_id=UUID(int=3))
    mask = secrets_of().mask_document(document())["components"]["Tavily:0"]["obj"]["params"]["api_key"]
    into_sql = {"components": {"ExeSQL:0": node("ExeSQL", password=mask)}}

    assert is_mask(mask)
    with pytest.raises(InvalidCanvas, match=r'Node Tavily:0|Node "Search" \(Tavily:0\), "api_key"') as refused:
        elsewhere.seal_document({"components": {"Tavily:0": node("TavilySearch", api_key=mask)}}, lambda: [document()])
    with pytest.raises(InvalidCanvas, match='"password" of ExeSQL is masked'):
        secrets_of().seal_document(into_sql, lambda: [document()])
    assert refused.value.details["node"] == "Tavily:0"


def test_sealed_text_of_a_caller_is_accepted_unmoved_and_refused_elsewhere():
    stored = secrets_of().seal_document(document())
    sealed = stored["components"]["Tavily:0"]["obj"]["params"]["api_key"]

    assert secrets_of().seal_document(stored, lambda: [stored]) == stored
    for component, field, before in (("TavilySearch", "api_key", []), ("ExeSQL", "password", [stored])):
        with pytest.raises(InvalidCanvas, match="begins with easel-sealed") as refused:
            secrets_of().seal_document(
                {"components": {"x": node(component, **{field: sealed})}}, lambda before=before: before
            )
        assert (refused.value.details["node"], refused.value.details["field"]) == ("x", field)


def test_secret_of_an_undeclared_component_is_masked_and_kept():
    stored = secrets_of().seal_document(document())

    def declared(name: str) -> SecretDeclaration | None:
        return None if name in ("tavily", "TavilySearch", "Invoke") else registry.secret_fields(name)

    without = CanvasSecrets(TENANT, CANVAS, declared, secrets_of().cipher)
    shown = without.mask_document(stored)

    assert "easel-sealed" not in json.dumps(shown)
    assert is_mask(shown["components"]["Tavily:0"]["obj"]["params"]["api_key"])
    assert shown == secrets_of().mask_document(stored)
    assert without.seal_document(shown, lambda: [stored]) == stored


def test_mask_in_an_undeclared_parameter_that_stands_for_no_secret_is_stored_as_it_is():
    written = {"components": {"Plugin:0": node("Plugin", note="see ••••0123abcd or ••••")}}

    assert secrets_of().seal_document(written) == written


@pytest.mark.parametrize("blanks", ["{}", " {}", "{}\n", "\t{} "])
def test_a_mask_with_blanks_around_it_keeps_its_secret(blanks: str):
    stored = secrets_of().seal_document(document())
    masked = secrets_of().mask_document(stored)
    params = masked["components"]["ExeSQL:0"]["obj"]["params"]
    params["password"] = blanks.format(params["password"])

    assert secrets_of().seal_document(masked, lambda: [stored]) == stored


@pytest.mark.parametrize("written", ["Bearer {}", "{}x", "••••", "x••••", "{}{}", "••••12345G78"])
def test_mask_among_other_characters_is_refused_with_node_and_field(written: str):
    stored = secrets_of().seal_document(document())
    masked = secrets_of().mask_document(stored)
    headers = masked["components"]["Agent:0"]["obj"]["params"]["custom_header"]
    headers["Authorization"] = written.format(*[headers["Authorization"]] * 2)

    with pytest.raises(InvalidCanvas, match=r"among other characters.*Type in the whole secret") as refused:
        secrets_of().seal_document(masked, lambda: [stored])

    assert refused.value.details["node"] == "Agent:0"
    assert refused.value.details["field"] == "custom_header.authorization"


@pytest.mark.parametrize(
    "other",
    [
        secrets_of(EncryptionKey.from_secret("another secret that is long")),
        secrets_of(tenant_id=UUID(int=9)),
        secrets_of(canvas_id=UUID(int=9)),
        secrets_of(None),
    ],
)
def test_error_of_a_secret_that_cannot_be_opened_names_node_and_field(other: CanvasSecrets):
    stored = secrets_of().seal_document(document())

    with pytest.raises(CannotUnseal, match=r'Node "Search" \(Tavily:0\), "api_key" of TavilySearch.*EASEL_SECRET_KEY'):
        other.open_document({**stored, "components": {"Tavily:0": stored["components"]["Tavily:0"]}})


def test_secret_is_refused_without_an_encryption_key():
    with pytest.raises(InvalidCanvas, match="no sealing key"):
        secrets_of(None).seal_document(document())


TEMPLATES = [
    "pa{result}ss",
    "env.prod123",
    "env.key",
    "Bearer sk-live {sys.user_id}",
    "Bearer sk-live{env.key}",
    "sk-live {env.key}",
    "{env.user}:{begin@password}",
    "Bearer {env.key} sk-live",
    "Bearer",
]


@pytest.mark.parametrize("value", TEMPLATES)
def test_a_value_that_is_more_than_a_reference_is_sealed(value: str):
    stored = secrets_of().seal_document({"components": {"Invoke:0": node("Invoke", headers={"Authorization": value})}})

    assert value not in json.dumps(stored)
    assert "sk-live" not in json.dumps(stored)
    assert value not in json.dumps(secrets_of().mask_document(stored))
    assert "easel-sealed" not in json.dumps(secrets_of(None).mask_document(stored))


def test_references_within_a_sealed_value_are_still_found():
    written = {"components": {"Invoke:0": node("Invoke", headers={"X": "sk {Agent:0@key} {env.a}{{ env.a }} {item}"})}}
    stored = secrets_of().seal_document(written)

    assert references.names_in(stored) == references.names_in(written)
    assert references.names_in(stored).nodes == {("Agent:0", "key")}
    assert secrets_of().seal_document(secrets_of().mask_document(stored), lambda: [stored]) == stored
    assert secrets_of().open_document(stored) == written


@pytest.mark.parametrize(
    "name",
    ["X-PAT", "X-Signature", "X-JWT", "X-Pass", "X-Bearer", "DSN", "Ocp-Apim-Subscription-Key", "Authorization", "X"],
)
def test_every_header_that_is_not_known_to_be_harmless_is_sealed(name: str):
    headers = {name: "of-a-header", "Accept": "text/html", "content-type": "text/plain", "User-Agent": "easel"}
    stored = secrets_of().seal_document({"components": {"a": node("Invoke", headers=headers)}})

    stored_headers = stored["components"]["a"]["obj"]["params"]["headers"]
    assert "of-a-header" not in json.dumps(stored)
    assert {**stored_headers, name: "of-a-header"} == headers


@pytest.mark.parametrize(
    "value",
    [
        "{env.key}",
        "{{ env.key }}",
        " Bearer  {env.key}",
        "token {begin@key}",
        "{begin@key}",
        "{item}",
        "",
        "  ",
        None,
        True,
        [],
    ],
)
def test_references_and_empty_values_are_not_sealed(value: Any):
    written = {"components": {"Tavily:0": node("TavilySearch", api_key=value)}}

    assert secrets_of().seal_document(written)["components"] == written["components"]


VARIABLES = {"globals": {"env.old": "", "sys.query": ""}, "variables": {"key": {"type": "string", "value": ""}}}


def with_variables(component: str, **params: Any) -> dict[str, Any]:
    """Return a document with variables, a node `Agent:0`, a drawing, and one node of a component."""
    return {
        **VARIABLES,
        "components": {"Agent:0": node("Agent"), "a": node(component, **params)},
        "graph": {"nodes": [{"id": "a", "data": {"label": component, "name": "a", "form": params}}]},
    }


@pytest.mark.parametrize("value", ["env.key", "env.old", "sys.query", "sys.user_id", "Agent:0@key", "Agent:0@a.b[0]"])
def test_reference_without_braces_to_what_the_document_has_stays_a_reference(value: str):
    written = with_variables("TavilySearch", api_key=value)
    stored = secrets_of().seal_document(written)

    assert stored == written == secrets_of().seal_plain_text(written) == secrets_of().mask_document(written)
    assert references.names_in(stored) == references.names_in(written) != references.Names()


@pytest.mark.parametrize(
    "value",
    ["env.prod123", "env.key ", "Bearer env.key", "env.key2", "sys.key", "Agent:1@key", "a b@c", "key", "env.k@a"],
)
def test_text_that_only_looks_like_a_reference_is_sealed(value: str):
    stored = secrets_of().seal_document(with_variables("TavilySearch", api_key=value))

    assert f'"api_key": "{value}"' not in json.dumps(stored)
    assert secrets_of().open_document(stored) == with_variables("TavilySearch", api_key=value)


def test_name_of_a_variable_in_a_header_is_sealed_since_headers_are_filled_as_texts():
    stored = secrets_of().seal_document(with_variables("Invoke", headers={"Authorization": "env.key"}))

    assert "env.key" not in json.dumps(stored["components"])


@pytest.mark.parametrize("broken", [{"globals": [], "variables": None}, {"globals": "env.old"}])
def test_reference_without_braces_in_a_document_of_odd_shape_is_sealed(broken: dict[str, Any]):
    stored = secrets_of().seal_document({**with_variables("TavilySearch", api_key="env.old"), **broken})

    assert '"api_key": "env.old"' not in json.dumps(stored)


@pytest.mark.parametrize("value", ["a@b", 12345, 1.5, "•••", "é{x}", "xxx", *TEMPLATES])
def test_values_that_are_not_texts_are_sealed_and_opened_unchanged(value: Any):
    written = {"components": {"ExeSQL:0": node("ExeSQL", password=value)}}
    stored = secrets_of().seal_document(written)

    assert holds_sealed(stored)
    assert secrets_of().open_document(stored) == written


def test_plain_text_secrets_of_earlier_releases_are_read_masked_and_sealed_later():
    stored = secrets_of().seal_plain_text(document())

    assert secrets_of().open_document(document()) == document()
    assert secrets_of().mask_document(document()) == secrets_of().mask_document(stored)
    assert stored == secrets_of().seal_document(document()) == secrets_of().seal_plain_text(stored)


def test_headers_that_are_not_json_and_malformed_documents_are_unchanged():
    odd = {
        "components": {
            "a": node("Invoke", headers="{broken"),
            "b": node("Invoke", headers="[1]"),
            "c": node("Begin", security="x"),
            "d": node("Agent", tools="x", custom_header=[1]),
            "e": node("Nobody", api_key="x"),
            "f": "x",
            "g": {"obj": {"component_name": 1}},
        },
        "graph": {"nodes": ["x", {"id": 1, "data": {"form": {}}}, {"data": 1}]},
    }

    assert secrets_of().seal_document(odd) == odd


def test_sealed_parameters_of_one_node_are_opened():
    stored = secrets_of().seal_document(document())["components"]["Tavily:0"]["obj"]["params"]

    opened = secrets_of().open_params(SecretPosition("Tavily:0", "Search", "TavilySearch", ""), stored)

    assert opened == document()["components"]["Tavily:0"]["obj"]["params"]
    assert holds_sealed(stored)
