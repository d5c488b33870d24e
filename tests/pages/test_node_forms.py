"""The forms of nodes in the editor, in a real browser."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from canvas.document.drawing import components_of
from canvas.ids import TenantId
from components.forms.catalogue import catalogue
from store.tenants import tenants
from tests.integration.api.talking import Client, eventually
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf

KEY = "sk-live-0123456789"
COMPONENTS: Mapping[str, Mapping[str, Any]] = {each["name"]: each for each in catalogue()["components"]}
UNSHOWN = "outputs"  # shown to read


def node(node_id: str, label: str, form: Any = None, parent: str = "", at: int = 0) -> dict[str, Any]:
    """Return a drawn node, as RAGFlow's editor stores it."""
    drawn = {
        "id": node_id,
        "type": COMPONENTS[label]["node_type"] if label in COMPONENTS else "ragNode",
        "position": {"x": 50 + 250 * (at % 8), "y": 100 + 120 * (at // 8)},
        "data": {"label": label, "name": f"the {node_id}", "form": {} if form is None else form},
    }
    return {**drawn, "parentId": parent} if parent else drawn


def edge(source: str, target: str, handle: str = "start") -> dict[str, Any]:
    return {
        "id": f"xy-edge__{source}{handle}-{target}end",
        "source": source,
        "target": target,
        "sourceHandle": handle,
        "targetHandle": "end",
    }


def drawing(*parts: dict[str, Any], **document: Any) -> dict[str, Any]:
    """Return a document of a drawing."""
    graph = {
        "nodes": [part for part in parts if "data" in part],
        "edges": [part for part in parts if "source" in part],
    }
    return {"components": components_of(graph), "graph": graph, "globals": {}, "variables": {}, **document}


STORY = drawing(
    node("begin", "Begin", {"mode": "conversational", "inputs": {}}),
    node("LLM:0", "LLM", {"llm_id": "echo@Easel", "sys_prompt": "", "unknown": {"a": 1.0}}, at=1),
    node("Message:0", "Message", {"content": ["Answer: {LLM:0@content}"]}, at=2),
    edge("begin", "LLM:0"),
    edge("LLM:0", "Message:0"),
    variables={"limit": {"type": "number", "value": 3}},
)


def make_agent(client: Client, document: Any) -> str:
    """Make an agent of a document that may be half-drawn."""
    reply = client.http.post("/api/v1/viewer/agents", params={"title": "forms"}, content=json.dumps(document))
    assert reply.status_code == 201, reply.text
    return reply.json()["id"]


def draft(client: Client, agent: str) -> dict[str, Any]:
    return client.http.get(f"/api/v1/viewer/agents/{agent}/draft").json()["document"]


def form_of(client: Client, agent: str, node_id: str) -> dict[str, Any]:
    """Return the form of a node as it is stored."""
    return next(each for each in draft(client, agent)["graph"]["nodes"] if each["id"] == node_id)["data"]["form"]


def params_of(client: Client, agent: str, node_id: str) -> dict[str, Any]:
    """Return the parameters of a node, which a run reads."""
    return draft(client, agent)["components"][node_id]["obj"]["params"]


def wait_for_form(client: Client, agent: str, node_id: str, condition: Callable[[dict[str, Any]], bool]) -> Any:
    """Wait until the editor has saved a form; return it."""
    return eventually(lambda: form_of(client, agent, node_id), condition, seconds=30)


def open_form(reader: Reader, agent: str, node_id: str) -> None:
    reader.visit(f"/agents/{agent}/edit?node={node_id}")
    reader.page.get_by_role("group", name="Parameters").first.wait_for()


def field(reader: Reader, path: str) -> Any:
    return reader.page.locator(f'[data-testid=field][data-field="{path}"]')


def option_of(reader: Reader, text: str = "") -> Any:
    """Return the options of the list that is open."""
    return reader.page.get_by_role("listbox").get_by_role("option").filter(has_text=text)


def labels_of(reader: Reader) -> list[str]:
    """Return the labels of the options of the list that is open."""
    return [text.split("\n")[0] for text in option_of(reader).all_inner_texts()]


def text_of(reader: Reader, path: str) -> str:
    return field(reader, path).inner_text()


def widgets_of(schema: Any) -> set[str]:
    """Return the widgets and types of the fields of a schema, those inside of lists too."""
    found: set[str] = set()
    for each in schema.get("properties", {}).values():
        found.add(str(each.get("x-easel-widget") or each.get("type")))
        found |= widgets_of(each.get("items") or {}) | widgets_of(each)
    return found


def components_with_every_widget() -> list[str]:
    """Return components that together have a field of each kind."""
    chosen: list[str] = []
    seen: set[str] = set()
    for name, component in sorted(COMPONENTS.items(), key=lambda each: -len(widgets_of(each[1]["params"]))):
        if widgets_of(component["params"]) - seen:
            chosen.append(name)
            seen |= widgets_of(component["params"])
    return chosen


def test_every_field_of_a_component_has_a_labelled_control(signed_in: Reader, client: Client):  # T154
    names = components_with_every_widget()
    nodes = [node(f"{name}:0", name, {}, at=at) for at, name in enumerate(names)]
    agent = make_agent(client, drawing(*nodes))
    page = signed_in.page
    signed_in.visit(f"/agents/{agent}/edit")

    for name in names:
        component = COMPONENTS[name]
        page.evaluate("url => history.pushState({}, '', url)", f"/agents/{agent}/edit?node={name}:0")
        page.get_by_role("group", name=f"Parameters of {component['title']}", exact=True).wait_for()
        shown = page.eval_on_selector_all(
            "[data-testid=field]", "fields => fields.map((each) => each.dataset.field.split(/[.[]/)[0])"
        )
        expected = {
            field_name
            for field_name, schema in component["params"]["properties"].items()
            if schema.get("x-easel-widget") not in ("hidden", UNSHOWN, "structured_outputs")
            and "x-easel-when" not in schema
        }
        assert expected - set(shown) == set(), name
        assert page.evaluate(UNLABELLED) == [], name


UNLABELLED = """() => [...document.querySelectorAll('[role=group] *')]
  .filter((each) => each.matches("input, select, textarea, button, [role=textbox]"))
  .filter((each) => {
    const label = each.id && document.querySelector(`label[for="${CSS.escape(each.id)}"]`);
    const name = each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") || each.textContent.trim();
    return !(label || each.closest("label") || name);
  }).map((each) => each.outerHTML)"""


def test_values_arrive_in_the_form_and_in_the_parameters_and_defaults_are_not_written(
    signed_in: Reader, client: Client
):  # T154
    agent = make_agent(client, STORY)
    open_form(signed_in, agent, "LLM:0")

    signed_in.page.get_by_text("Model settings").click()
    field(signed_in, "temperatureEnabled").check()
    field(signed_in, "temperature").fill("0.5")
    field(signed_in, "sys_prompt").fill("Be brief.")
    field(signed_in, "cite").uncheck()
    field(signed_in, "prompts[0].content").fill("Why?")
    form = wait_for_form(client, agent, "LLM:0", lambda form: form.get("prompts", [{}])[0].get("content") == "Why?")

    assert form == {
        "llm_id": "echo@Easel",
        "sys_prompt": "Be brief.",
        "unknown": {"a": 1.0},
        "temperatureEnabled": True,
        "temperature": 0.5,
        "cite": False,
        "prompts": [{"role": "user", "content": "Why?"}],
    }
    assert params_of(client, agent, "LLM:0") == form


def test_keys_that_the_form_does_not_know_are_other_parameters(signed_in: Reader, client: Client):  # T154
    agent = make_agent(client, STORY)
    open_form(signed_in, agent, "LLM:0")
    page = signed_in.page
    page.locator("summary", has_text="Other parameters").click()
    others = page.get_by_role("textbox", name="Other parameters")
    assert json.loads(others.inner_text()) == {"unknown": {"a": 1}}

    others.fill('{"unknown": {"a": 1}, "cite": true}')
    page.get_by_text("has a field of its own").wait_for()
    others.fill("{")
    page.get_by_text("This is not JSON").wait_for()
    others.fill('{"unknown": {"a": 1}, "mine": [2]}')

    form = wait_for_form(client, agent, "LLM:0", lambda form: "mine" in form)
    assert form["mine"] == [2]
    assert "cite" not in form


def test_secret_is_masked_and_sent_only_if_it_was_changed(signed_in: Reader, client: Client):  # T154
    search = node("TavilySearch:0", "TavilySearch", {"api_key": KEY, "query": "{sys.query}"}, at=1)
    agent = make_agent(client, drawing(node("begin", "Begin"), search, edge("begin", "TavilySearch:0")))
    signed_in.page.add_init_script(RECORD_BODIES)
    open_form(signed_in, agent, "TavilySearch:0")
    secret = field(signed_in, "api_key")
    assert (secret.get_attribute("type"), secret.input_value()) == ("password", "")

    field(signed_in, "max_results").fill("3")
    wait_for_form(client, agent, "TavilySearch:0", lambda form: form.get("max_results") == 3)

    sent = signed_in.page.evaluate("window.__bodies")
    assert [body for body in sent if "max_results" in body] != []
    assert [body for body in sent if KEY in body or "api_key" in body] == []
    assert KEY not in signed_in.page.content()
    assert stored_key(client, agent) == KEY

    secret.fill("another key")
    eventually(lambda: stored_key(client, agent), lambda key: key == "another key", seconds=30)


RECORD_BODIES = """
window.__bodies = [];
const send = window.fetch;
window.fetch = (url, options) => {
  if (options?.body) void new Response(options.body).text().then((text) => window.__bodies.push(text));
  return send(url, options);
};
"""


def stored_key(client: Client, agent: str) -> str:
    exported = client.http.get(f"/api/v1/viewer/agents/{agent}/export").json()
    return exported["graph"]["nodes"][1]["data"]["form"]["api_key"]


def test_reference_is_picked_by_keyboard_and_the_inserted_text_runs(signed_in: Reader, client: Client):  # T155
    agent = make_agent(client, STORY)
    open_form(signed_in, agent, "Message:0")
    page = signed_in.page
    text = field(signed_in, "content[0]")
    text.locator(".cm-reference, [data-reference]").first.wait_for()
    assert "the LLM:0 · content" in text_of(signed_in, "content[0]")

    text.focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(" of {limit")
    page.get_by_role("listbox").wait_for()
    page.keyboard.press("Enter")
    page.keyboard.type(", ")
    page.get_by_role("button", name="Insert a reference: Text").focus()
    page.keyboard.press("Enter")
    page.get_by_role("combobox", name="Search references").wait_for()
    page.keyboard.type("sys query")
    page.keyboard.press("Enter")

    expected = "Answer: {LLM:0@content} of {env.limit}, {sys.query}"
    wait_for_form(client, agent, "Message:0", lambda form: form["content"] == [expected])
    run = client.wait_for(client.start(agent, "why")["run_id"], "succeeded", "failed")
    assert run["answer"].endswith(" of 3, why"), run


def test_references_inside_of_an_iteration_have_item_and_index(signed_in: Reader, client: Client):  # T155
    body = drawing(
        node("begin", "Begin"),
        node("Iteration:0", "Iteration", {"items_ref": "sys.files", "outputs": {}}, at=1),
        node("IterationItem:0", "IterationItem", parent="Iteration:0"),
        node("StringTransform:0", "StringTransform", {"method": "split", "split_ref": ""}, parent="Iteration:0", at=1),
        node("Message:0", "Message", {"content": [""]}, at=3),
        edge("begin", "Iteration:0"),
        edge("IterationItem:0", "StringTransform:0"),
        edge("Iteration:0", "Message:0"),
    )
    agent = make_agent(client, body)
    open_form(signed_in, agent, "StringTransform:0")
    page = signed_in.page

    field(signed_in, "split_ref").press("{")
    page.get_by_role("combobox", name="Search references").wait_for()
    assert (
        labels_of(signed_in).count("item") == labels_of(signed_in).count("index") == 2
    )  # of the container, and its start
    page.keyboard.type("IterationItem:0@item")
    page.keyboard.press("Enter")
    wait_for_form(client, agent, "StringTransform:0", lambda form: form["split_ref"] == "IterationItem:0@item")
    assert page.evaluate("document.activeElement.dataset.field") == "split_ref"

    open_form(signed_in, agent, "Message:0")
    page.get_by_role("button", name="Insert a reference: Text").click()
    option_of(signed_in).first.wait_for()
    assert (
        labels_of(signed_in).count("item") == labels_of(signed_in).count("index") == 1
    )  # only as outputs of the start


def test_finding_is_at_its_field_and_gone_after_the_correction(signed_in: Reader, client: Client):  # T158
    document = json.loads(json.dumps(STORY))
    document["graph"]["nodes"][1]["data"]["form"].update(llm_id="", sys_prompt="{LLM:9@content}")
    document["components"] = components_of(document["graph"])
    agent = make_agent(client, document)
    open_form(signed_in, agent, "LLM:0")
    page = signed_in.page

    page.locator('[data-field="llm_id"][aria-invalid=true]').wait_for()
    page.locator('[data-field="sys_prompt"][aria-invalid=true]').wait_for()
    described = field(signed_in, "sys_prompt").get_attribute("aria-describedby")
    assert "LLM:9@content" in page.locator(f'[id="{described}"]').inner_text()
    assert field(signed_in, "prompts").get_attribute("aria-invalid") == "false"

    field(signed_in, "llm_id").click()
    option_of(signed_in, "echo").first.click()
    field(signed_in, "sys_prompt").fill("Be brief.")

    page.locator('[data-field="llm_id"][aria-invalid=false]').wait_for()
    page.locator('[data-field="sys_prompt"][aria-invalid=false]').wait_for()


def test_click_on_a_finding_focuses_its_field_in_a_closed_section(signed_in: Reader, client: Client):  # T158
    document = json.loads(json.dumps(STORY))
    document["graph"]["nodes"][1]["data"]["form"].update(exception_method="comment")
    document["components"] = components_of(document["graph"])
    agent = make_agent(client, document)
    signed_in.visit(f"/agents/{agent}/edit")

    signed_in.page.locator('[data-testid=finding][data-field="exception_default_value"]').get_by_role(
        "button"
    ).first.click()

    focused = "document.activeElement.dataset.field"
    eventually(lambda: signed_in.page.evaluate(focused), lambda name: name == "exception_default_value", seconds=30)


def test_branches_are_added_moved_and_removed(signed_in: Reader, client: Client):  # T154
    agent = make_agent(
        client,
        drawing(
            node("begin", "Begin"),
            node("Switch:0", "Switch", {"conditions": [], "end_cpn_ids": []}, at=1),
            node("Message:0", "Message", {"content": ["yes"]}, at=2),
            node("Message:1", "Message", {"content": ["no"]}, at=3),
            edge("begin", "Switch:0"),
        ),
    )
    open_form(signed_in, agent, "Switch:0")
    page = signed_in.page

    page.get_by_role("button", name="Add: Case").click()
    field(signed_in, "conditions[0].items[0].cpn_id").fill("sys.query")
    field(signed_in, "conditions[0].items[0].value").fill("yes")
    field(signed_in, "conditions[0].to").select_option("Message:0")
    field(signed_in, "end_cpn_ids").select_option("Message:1")
    yes = {
        "logical_operator": "and",
        "items": [{"cpn_id": "sys.query", "operator": "=", "value": "yes"}],
        "to": ["Message:0"],
    }
    wait_for_form(
        client, agent, "Switch:0", lambda form: form["conditions"] == [yes] and form["end_cpn_ids"] == ["Message:1"]
    )
    run = client.wait_for(client.start(agent, "yes")["run_id"], "succeeded", "failed")
    assert run["answer"] == "yes"

    page.get_by_role("button", name="Add: Case").click()
    page.get_by_role("button", name="Move Case 2 up").click()
    field(signed_in, "conditions[0].logical_operator").select_option("or")
    form = wait_for_form(client, agent, "Switch:0", lambda form: form["conditions"][0]["logical_operator"] == "or")
    assert form["conditions"][1] == yes
    page.get_by_role("button", name="Remove Case 1").click()
    wait_for_form(client, agent, "Switch:0", lambda form: form["conditions"] == [yes])


def test_categories_lead_to_nodes_by_edges(signed_in: Reader, client: Client):  # T154
    agent = make_agent(
        client,
        drawing(
            node("begin", "Begin"),
            node("Categorize:0", "Categorize", {"llm_id": "echo@Easel", "items": []}, at=1),
            node("Message:0", "Message", {"content": ["invoice"]}, at=2),
            edge("begin", "Categorize:0"),
        ),
    )
    open_form(signed_in, agent, "Categorize:0")

    signed_in.page.get_by_role("button", name="Add: Category").click()
    field(signed_in, "items[0].name").fill("Invoice")
    field(signed_in, "items[0].examples[0].value").fill("I was charged twice.")
    field(signed_in, "items[0].to").select_option("Message:0")

    def targets() -> Any:
        return params_of(client, agent, "Categorize:0")["category_description"].get("Invoice", {})

    stored = eventually(targets, lambda category: category.get("to") == ["Message:0"], seconds=30)
    assert stored["examples"] == ["I was charged twice."]
    edges = draft(client, agent)["graph"]["edges"]
    assert [each["target"] for each in edges if each["source"] == "Categorize:0"] == ["Message:0"]


def test_viewer_sees_the_form_and_can_change_nothing(reader: Reader, deployment: Deployment, client: Client):  # T165
    agent = make_agent(client, STORY)
    with deployment.server.database.transaction() as tx:
        _, token = tenants.create_token(tx, TenantId(client.tenant_id), "reader", "viewer")
    reader.sign_in(deployment.server.client_of(client.tenant_id, token))
    open_form(reader, agent, "LLM:0")

    form = reader.page.get_by_role("group", name="Parameters of LLM")
    writable = """(group) => [...group.querySelectorAll("input, select, textarea, button, [role=textbox]")]
      .filter((each) => !each.hasAttribute("aria-pressed")) // what changes the view alone
      .filter((each) => !(each.disabled || each.readOnly || each.getAttribute("aria-readonly") === "true"))
      .map((each) => each.outerHTML)"""
    assert form.evaluate(writable) == []
    assert form.get_by_role("button", name="Add: Message").count() == 0


def test_axe_finds_nothing_in_the_forms(reader_of: ReaderOf, deployment: Deployment, client: Client):  # T120
    cases = {
        "conditions": [{"logical_operator": "and", "items": [{"cpn_id": "LLM:9@x", "operator": "=", "value": ""}]}]
    }
    agent = make_agent(
        client,
        drawing(
            node("begin", "Begin", {"inputs": {"city": {"name": "City", "type": "options", "options": ["a"]}}}),
            node("Agent:0", "Agent", {"prompts": [{"role": "user", "content": "{sys.query}"}]}, at=1),
            node("Switch:0", "Switch", cases, at=2),
            edge("begin", "Agent:0"),
        ),
    )
    reader = reader_of(deployment.server)
    reader.sign_in(client)

    for node_id in ("begin", "Agent:0", "Switch:0"):
        open_form(reader, agent, node_id)
        reader.page.evaluate("document.querySelectorAll('[role=group] details').forEach((each) => (each.open = true))")
        if node_id == "Agent:0":
            reader.page.get_by_role("button", name="Insert a reference: System prompt").click()
            option_of(reader).first.wait_for()
        assert axe_findings(reader.page) == [], node_id
