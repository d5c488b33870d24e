"""The forms of components, by name: fields, group, outputs, and the handles where edges begin and end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.forms.fields import FormField, choice, form_field, mapping, number, rows, switch, text, texts
from components.forms.shared_fields import DESCRIPTION, ERRORS, FORM_INPUTS, HISTORY, MODEL, OUTPUTS, PROMPTS

GROUPS: Mapping[str, str] = {
    "flow": "Flow",
    "model": "Models",
    "data": "Data",
    "tools": "Tools",
    "other": "Others",
}

PLAIN: Mapping[str, Any] = {"in": ["end"], "out": ["start"]}
LOGIC = ("and", "or")
SWITCH_OPERATORS = (
    "=", "≠", ">", "≥", "<", "≤", "contains", "not contains", "start with", "end with", "empty", "not empty",
)  # fmt: skip
ASSIGNMENTS = (
    "overwrite", "clear", "set", "append", "extend", "remove_first", "remove_last", "+=", "-=", "*=", "/=",
)  # fmt: skip
_ANY = ["string", "number", "boolean", "object", "array", "null"]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a component. `outputs`: name -> type; `kind`: ordinary, container, start, note."""

    title: str
    group: str
    description: str
    fields: tuple[FormField, ...]
    kind: str = "ordinary"
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    handles: Mapping[str, Any] = field(default_factory=lambda: PLAIN)
    node_type: str | None = None
    written: tuple[FormField, ...] = ()  # fields of other shapes, which runs read too


FORMS: Mapping[str, Form] = {
    "Begin": Form(
        "Begin",
        "flow",
        "Where runs begin: greets, and asks for inputs.",
        (
            choice("mode", "Mode", "How runs are started.", ("conversational", "task", "Webhook"),
                   default="conversational"),
            switch("enablePrologue", "Greeting", "Whether a conversation begins with a greeting.", default=True,
                   when={"mode": ["conversational"]}),
            text("prologue", "Text of the greeting", "What a conversation begins with.",
                 default="Hi! What can I do for you?", widget="multiline", when={"enablePrologue": [True]}),
            FORM_INPUTS,
            text("layout_recognize", "Parser of files", "How the files of inputs are read."),
            texts("methods", "Methods", "The HTTP methods that the webhook accepts.", when={"mode": ["Webhook"]}),
            mapping("schema", "Request", "What a request of the webhook has.", when={"mode": ["Webhook"]},
                    widget="json"),
            mapping("security", "Security", "Who may call the webhook; its secrets are masked.",
                    when={"mode": ["Webhook"]}, widget="json"),
            mapping("response", "Response", "What the webhook answers.", when={"mode": ["Webhook"]}, widget="json"),
            OUTPUTS,
        ),
        handles={"in": [], "out": ["start"]},
    ),
    "Message": Form(
        "Message",
        "flow",
        "Writes a text to the user.",
        (
            texts("content", "Texts", "The texts, of which each time one is chosen.", default=[""], widget="prompts"),
            switch("stream", "Stream", "Whether text is shown while a model writes it."),
            choice("output_format", "File", "The format of a file with the text.",
                   ("pdf", "docx", "markdown", "md", "html", "xlsx", "txt")),
            switch("auto_play", "Read aloud", "Whether the text is read aloud."),
            form_field("status", "Status", "The HTTP status of a webhook's answer.", ("integer", "string", "null")),
            form_field("memory_ids", "Memories", "The memories that store the turn.", ("array", "null"),
                       items={"type": "string"}, widget="memory"),
            text("user_id", "User", "Whose memory it is.", widget="reference"),
            OUTPUTS,
        ),
        outputs={"content": "string", "downloads": "Array<Object>"},
    ),
    "UserFillUp": Form(
        "Ask the user",
        "flow",
        "Shows a form, and waits for the answers.",
        (
            switch("enable_tips", "Message", "Whether a text is shown above the form.", default=True),
            text("tips", "Text", "The text above the form.", default="Please fill in the form.", widget="prompt",
                 when={"enable_tips": [True]}),
            FORM_INPUTS,
            text("layout_recognize", "Parser of files", "How uploaded files are read."),
            number("expires_after", "Expires after", "Seconds after which the form is over."),
            OUTPUTS,
        ),
    ),
    "Switch": Form(
        "Switch",
        "flow",
        "Takes the first branch whose conditions hold.",
        (
            rows(
                "conditions",
                "Branches",
                "The branches with their conditions, tried in order.",
                {
                    "logical_operator": {"enum": list(LOGIC), "title": "All or any"},
                    "items": {
                        "type": "array",
                        "title": "Conditions",
                        "items": {
                            "type": "object",
                            "properties": {
                                "cpn_id": {"type": "string", "title": "Value", "x-easel-widget": "reference"},
                                "operator": {"type": "string", "title": "Operator", "examples": list(SWITCH_OPERATORS)},
                                "value": {"type": _ANY, "title": "Compared with"},
                            },
                        },
                    },
                    "to": {"type": ["array", "string", "null"], "title": "Targets", "x-easel-widget": "nodes"},
                },
                default=[],
                widget="conditions",
            ),
            texts("end_cpn_ids", "Else", "The targets if no branch holds.", default=[], widget="nodes"),
            OUTPUTS,
        ),
        handles={
            "in": ["end"],
            "out": [],
            "per": {"field": "conditions", "handle": "Case {n}", "else": "end_cpn_ids"},
        },
    ),
    "Categorize": Form(
        "Categorize",
        "model",
        "A model chooses the branch by the meaning of a text.",
        (
            *MODEL,
            text("query", "Text", "What is categorized.", default="sys.query", widget="reference"),
            rows(
                "items",
                "Categories",
                "The categories, each with a branch.",
                {
                    "name": {"type": "string", "title": "Name"},
                    "description": {"type": ["string", "null"], "title": "Description"},
                    "examples": {"type": ["array", "string", "null"], "title": "Examples"},
                    "uuid": {"type": ["string", "null"], "title": "Handle"},
                },
                default=[],
                widget="categories",
            ),
            HISTORY,
            *ERRORS,
            OUTPUTS,
        ),
        outputs={"category_name": "string"},
        handles={"in": ["end"], "out": [], "per": {"field": "items", "handle": "{uuid}"}},
        written=(
            mapping("category_description", "Categories", "The categories by name, as runs have them."),
            text("default_category", "Otherwise", "The category if the model names none."),
        ),
    ),
    "Iteration": Form(
        "Iteration",
        "flow",
        "Runs its body once for each item of a list.",
        (
            text("items_ref", "List", "The list whose items the body gets.", default="", widget="reference"),
            number("max_concurrency", "At once", "How many items run at the same time; 0 or 1: one by one."),
            text("variable", "Name of an item", "A name for the item in the body."),
            mapping("outputs", "Outputs", "What is collected of each item, {name: {type, ref}}.", default={},
                    widget="collected_outputs"),
        ),
        kind="container",
    ),
    "IterationItem": Form(
        "Item",
        "flow",
        "Where the body of an Iteration begins.",
        (OUTPUTS,),
        kind="start",
        outputs={"item": "unknown", "index": "integer"},
        handles={"in": [], "out": ["start"]},
    ),
    "Loop": Form(
        "Loop",
        "flow",
        "Repeats its body until a condition holds.",
        (
            rows(
                "loop_variables",
                "Variables",
                "The variables of the loop, with their first values.",
                {
                    "variable": {"type": ["string", "null"], "title": "Name"},
                    "type": {"type": ["string", "null"], "title": "Type"},
                    "input_mode": {"enum": ["constant", "variable", "", None], "title": "Value or variable"},
                    "value": {"type": _ANY, "title": "First value"},
                },
                default=[],
            ),
            rows(
                "loop_termination_condition",
                "Ends when",
                "The conditions that end the loop.",
                {
                    "variable": {"type": ["string", "null"], "title": "Value", "x-easel-widget": "reference"},
                    "operator": {"type": ["string", "null"], "title": "Operator"},
                    "value": {"type": _ANY, "title": "Compared with"},
                    "input_mode": {"enum": ["constant", "variable", "", None], "title": "Value or variable"},
                },
                default=[],
                widget="conditions",
            ),
            choice("logical_operator", "All or any", "Whether all conditions must hold.", LOGIC, default="and"),
            number("maximum_loop_count", "At most", "How often the body runs at most.", default=10),
            OUTPUTS,
        ),
        kind="container",
    ),
    "LoopItem": Form(
        "Round",
        "flow",
        "Where the body of a Loop begins.",
        (OUTPUTS,),
        kind="start",
        handles={"in": [], "out": ["start"]},
    ),
    "ExitLoop": Form(
        "Exit loop", "flow", "Ends the Loop around it.", (OUTPUTS,), handles={"in": ["end"], "out": []}
    ),
    "LLM": Form(
        "LLM",
        "model",
        "Asks a model.",
        (*MODEL, *PROMPTS, HISTORY, *ERRORS, DESCRIPTION, OUTPUTS),
        outputs={"content": "string"},
    ),
    "Agent": Form(
        "Agent",
        "model",
        "A model that calls tools, MCP servers and other agents.",
        (
            *MODEL,
            *PROMPTS,
            form_field("tools", "Tools", "The tools, each {component_name, name, params}.", ("array", "null"),
                       default=[], items={"type": ["object", "string"]}, widget="tools"),
            form_field("mcp", "MCP servers", "The servers, each {mcp_id, tools}.", ("array", "null"), default=[],
                       items={"type": "object"}, widget="mcp"),
            number("max_rounds", "Rounds", "How often the model may call tools.", default=5),
            text("user_prompt", "Task of a sub-agent", "How the agent above describes the task.", widget="prompt"),
            choice("tool_mode", "How tools are offered", "`prompt` is for models without tool calls.",
                   ("native", "prompt")),
            switch("deep_research", "Deep research", "Whether the agent researches over several rounds."),
            HISTORY,
            *ERRORS,
            DESCRIPTION,
            OUTPUTS,
        ),
        outputs={"content": "string"},
        handles={
            "in": ["end", "agentTop"],
            "out": ["start", "agentBottom", "tool", "agentException"],
        },
    ),
    "VariableAssigner": Form(
        "Assign variables",
        "data",
        "Changes variables.",
        (
            rows(
                "variables",
                "Assignments",
                "The assignments, made in order.",
                {
                    "variable": {"type": ["string", "null"], "title": "Variable", "x-easel-widget": "reference"},
                    "operator": {"type": ["string", "null"], "title": "Operator", "examples": list(ASSIGNMENTS)},
                    "parameter": {"type": _ANY, "title": "Value"},
                },
                default=[],
                widget="assignments",
            ),
            OUTPUTS,
        ),
    ),
    "VariableAggregator": Form(
        "Aggregate variables",
        "data",
        "Takes the first of several variables that has a value.",
        (
            rows(
                "groups",
                "Groups",
                "Each group is an output: the first of its variables that has a value.",
                {
                    "group_name": {"type": ["string", "null"], "title": "Output"},
                    "type": {"type": ["string", "null"], "title": "Type"},
                    "variables": {
                        "type": ["array", "null"],
                        "title": "Variables",
                        "items": {
                            "type": ["object", "string"],
                            "properties": {"value": {"type": "string", "x-easel-widget": "reference"}},
                        },
                    },
                },
                default=[],
            ),
            OUTPUTS,
        ),
    ),
    "DataOperations": Form(
        "Data operations",
        "data",
        "Changes objects: selects, renames and removes keys, filters, combines.",
        (
            rows("query", "Objects", "The objects that are changed.",
                 {"input": {"type": ["string", "null"], "x-easel-widget": "reference"}},
                 default=[], items={"type": ["object", "string"]}),
            choice("operations", "Operation", "What is done.",
                   ("select_keys", "literal_eval", "combine", "filter_values", "append_or_update", "remove_keys",
                    "rename_keys"), default="select_keys"),
            rows("select_keys", "Keys", "The keys that stay.", {}, when={"operations": ["select_keys"]},
                 items={"type": ["object", "string"]}),
            rows("remove_keys", "Keys", "The keys that are removed.", {}, when={"operations": ["remove_keys"]},
                 items={"type": ["object", "string"]}),
            rows("filter_values", "Conditions", "The conditions, each {key, operator, value}.", {},
                 when={"operations": ["filter_values"]}),
            rows("updates", "Values", "The values that are set, each {key, value}.", {},
                 when={"operations": ["append_or_update"]}),
            rows("rename_keys", "Names", "The new names, each {old_key, new_key}.", {},
                 when={"operations": ["rename_keys"]}),
            OUTPUTS,
        ),
        outputs={"result": "Array<Object>"},
    ),
    "ListOperations": Form(
        "List operations",
        "data",
        "Takes a part of a list, filters or sorts it.",
        (
            text("query", "List", "The list.", default="", widget="reference"),
            choice("operations", "Operation", "What is done.",
                   ("nth", "head", "tail", "filter", "sort", "drop_duplicates"), default="nth"),
            number("n", "Number", "Which item, or how many.", when={"operations": ["nth", "head", "tail"]}),
            switch("strict", "Strict", "Whether a missing item is an error.", when={"operations": ["nth"]}),
            choice("sort_method", "Order", "Ascending or descending.", ("asc", "desc"),
                   when={"operations": ["sort"]}),
            text("sort_by", "Sort by", "The key by which objects are sorted.", when={"operations": ["sort"]}),
            mapping("filter", "Condition", "The condition, {operator, value}.", when={"operations": ["filter"]},
                    widget="condition"),
            OUTPUTS,
        ),
        outputs={"result": "Array<Any>", "first": "Any", "last": "Any"},
    ),
    "StringTransform": Form(
        "Text",
        "data",
        "Splits a text, or merges texts.",
        (
            choice("method", "Operation", "Split or merge.", ("split", "merge"), default="split"),
            text("split_ref", "Text", "The text that is split.", widget="reference", when={"method": ["split"]}),
            text("script", "Template", "The text with references.", widget="prompt", when={"method": ["merge"]}),
            texts("delimiters", "Delimiters", "Where the text is split, or what is put between.", default=[","]),
            OUTPUTS,
        ),
        outputs={"result": "Array<string>"},
    ),
    "Invoke": Form(
        "HTTP request",
        "data",
        "Sends an HTTP request.",
        (
            text("url", "Address", "The address, with references.", default="", widget="prompt"),
            choice("method", "Method", "The HTTP method.", ("get", "post", "put", "patch", "delete"), default="get"),
            form_field("headers", "Headers", "The headers as JSON; secret ones are masked.",
                       ("string", "object", "null"), widget="json"),
            rows("variables", "Values", "The query, or the body of other methods.",
                 {
                     "key": {"type": ["string", "null"], "title": "Name"},
                     "ref": {"type": ["string", "null"], "title": "Reference", "x-easel-widget": "reference"},
                     "value": {"type": _ANY, "title": "Value"},
                 }, default=[]),
            choice("datatype", "Body", "How values are sent.", ("json", "formdata"), default="json"),
            form_field("body", "Own body", "A body in place of the values.", _ANY, widget="prompt"),
            text("proxy", "Proxy", "The address of a proxy.", widget="secret"),
            number("timeout", "Time limit", "Seconds.", default=60),
            switch("clean_html", "Text only", "Whether HTML is converted to text."),
            *ERRORS,
            OUTPUTS,
        ),
        outputs={"result": "string"},
    ),
    "Note": Form(
        "Note",
        "other",
        "A note for people. Runs do not see it.",
        (text("text", "Text", "The note.", default="", widget="multiline"),),
        kind="note",
        handles={"in": [], "out": []},
        node_type="noteNode",
    ),
}  # fmt: skip
