"""The forms of components, by name: fields, group, outputs, and the handles where edges begin and end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.forms.fields import (
    WIDGETS,
    FormField,
    choice,
    form_field,
    mapping,
    number,
    rows,
    suggestion,
    switch,
    text,
    texts,
)
from components.forms.shared_fields import (
    ANSWER_OUTPUTS,
    DESCRIPTION,
    ERRORS,
    FORM_INPUTS,
    HISTORY,
    MODEL,
    OUTPUTS,
    PROMPTS,
    model,
)

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
LOOP_OPERATORS = (*SWITCH_OPERATORS, "is", "is not")
FILTER_OPERATORS = ("=", "≠", "contains", "start with", "end with")
VARIABLE_TYPES = ("string", "number", "boolean", "object", "array<string>", "array<number>", "array<object>")
PARSERS = ("DeepDOC", "Plain Text")
_ANY = ["string", "number", "boolean", "object", "array", "null"]
_TEXT = ["string", "null"]


def _reference(title: str) -> Mapping[str, Any]:
    """Return the schema of a reference in an entry of a list."""
    return {"type": _TEXT, "title": title, "x-easel-widget": "reference"}


def _one_of(title: str, options: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the schema of a text in an entry of a list, which is usually one of some."""
    return {"type": _TEXT, "title": title, "examples": list(options), "x-easel-widget": "choice"}


_KEY: Mapping[str, Any] = {"type": _TEXT, "title": "Key"}


def _value(title: str, *types: str) -> Mapping[str, Any]:
    """Return the schema of a value in an entry of a list: a text with references, or JSON."""
    return {"type": list(types) or _ANY, "title": title, "x-easel-widget": "prompt"}


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
            suggestion("layout_recognize", "Parser of files", "How the files of inputs are read.", PARSERS,
                       section="advanced"),
            texts("methods", "Methods", "The HTTP methods that the webhook accepts.", when={"mode": ["Webhook"]},
                  entry="Method"),
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
            texts("content", "Texts", "The texts, of which each time one is chosen.", default=[""], widget="prompts",
                  entry="Text"),
            switch("stream", "Stream", "Whether text is shown while a model writes it.", section="advanced"),
            choice("output_format", "File", "The format of a file with the text.",
                   ("pdf", "docx", "markdown", "md", "html", "xlsx", "txt")),
            switch("auto_play", "Read aloud", "Whether the text is read aloud.", section="advanced"),
            form_field("status", "Status", "The HTTP status of a webhook's answer.", ("integer", "string", "null"),
                       section="advanced"),
            form_field("memory_ids", "Memories", "The memories that store the turn.", ("array", "null"),
                       items={"type": "string"}, widget="memory"),
            text("user_id", "User", "Whose memory it is.", widget="prompt", section="advanced"),
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
            suggestion("layout_recognize", "Parser of files", "How uploaded files are read.", PARSERS,
                       section="advanced"),
            number("expires_after", "Expires after", "Seconds after which the form is over.", section="advanced"),
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
                    "logical_operator": {"enum": list(LOGIC), "title": "All or any", "x-easel-widget": "choice"},
                    "items": {
                        "type": "array",
                        "title": "Conditions",
                        "x-easel-entry": "Condition",
                        "x-easel-new": {"cpn_id": "", "operator": "=", "value": ""},
                        "items": {
                            "type": "object",
                            "properties": {
                                "cpn_id": {"type": "string", "title": "Value", "x-easel-widget": "reference"},
                                "operator": {**_one_of("Operator", SWITCH_OPERATORS), "type": "string"},
                                "value": _value("Compared with"),
                            },
                        },
                    },
                    "to": {"type": ["array", "string", "null"], "title": "Targets", "x-easel-widget": "nodes"},
                },
                default=[],
                widget="conditions",
                entry="Case",
                new={
                    "logical_operator": "and",
                    "items": [{"cpn_id": "", "operator": "=", "value": ""}],
                    "to": [],
                },
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
                    "description": {"type": _TEXT, "title": "Description", "x-easel-widget": "multiline"},
                    "examples": {
                        "type": ["array", "string", "null"],
                        "title": "Examples",
                        "x-easel-widget": "rows",
                        "x-easel-entry": "Example",
                        "x-easel-new": {"value": ""},
                        "items": {
                            "type": ["object", "string"],
                            "properties": {"value": {"type": _TEXT, "title": "Text", "x-easel-widget": "multiline"}},
                        },
                    },
                    "to": {"type": ["array", "string", "null"], "title": "Targets", "x-easel-widget": "nodes"},
                    "uuid": {"type": _TEXT, "title": "Handle", "x-easel-widget": "hidden"},
                },
                default=[],
                widget="categories",
                entry="Category",
                new={"name": "", "description": "", "examples": [{"value": ""}]},
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
            text("variable", "Name of an item", "A name for the item in the body.", section="advanced"),
            mapping("outputs", "Outputs", "What is collected of each item, as a list.", default={},
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
                    "variable": {"type": _TEXT, "title": "Name"},
                    "type": _one_of("Type", VARIABLE_TYPES),
                    "input_mode": {"enum": ["constant", "variable", "", None], "title": "Value or variable"},
                    "value": {**_value("First value"), WIDGETS: {"reference": {"input_mode": ["variable"]}}},
                },
                default=[],
                entry="Variable",
                new={"variable": "", "type": "string", "input_mode": "constant", "value": ""},
            ),
            rows(
                "loop_termination_condition",
                "Ends when",
                "The conditions that end the loop.",
                {
                    "variable": _reference("Value"),
                    "operator": _one_of("Operator", LOOP_OPERATORS),
                    "input_mode": {"enum": ["constant", "variable", "", None], "title": "Value or variable"},
                    "value": {**_value("Compared with"), WIDGETS: {"reference": {"input_mode": ["variable"]}}},
                },
                default=[],
                widget="conditions",
                entry="Condition",
                new={"variable": "", "operator": "=", "input_mode": "constant", "value": ""},
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
        (*MODEL, *PROMPTS, HISTORY, *ERRORS, DESCRIPTION, ANSWER_OUTPUTS),
        outputs={"content": "string"},
    ),
    "Agent": Form(
        "Agent",
        "model",
        "A model that calls tools, MCP servers and other agents.",
        (
            *MODEL,
            *PROMPTS,
            form_field("tools", "Tools", "What the model may call.", ("array", "null"),
                       default=[], items={"type": ["object", "string"]}, widget="tools"),
            form_field("mcp", "MCP servers", "Servers whose tools the model may call.", ("array", "null"), default=[],
                       items={"type": "object"}, widget="mcp"),
            number("max_rounds", "Rounds", "How often the model may call tools.", default=5),
            text("user_prompt", "Task of a sub-agent", "How the agent above describes the task.", widget="prompt"),
            choice("tool_mode", "How tools are offered", "`prompt` is for models without tool calls.",
                   ("native", "prompt"), section="advanced"),
            form_field("deep_research", "Deep research",
                       "Whether the question is researched with the tools that return sources before it is answered.",
                       ("boolean", "number", "object", "null"), widget="switch", section="advanced"),
            HISTORY,
            *ERRORS,
            DESCRIPTION,
            ANSWER_OUTPUTS,
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
                    "variable": _reference("Variable"),
                    "operator": _one_of("Operator", ASSIGNMENTS),
                    "parameter": {
                        **_value("Value"),
                        WIDGETS: {
                            "reference": {"operator": ["overwrite", "append", "extend"]},
                            "number": {"operator": ["+=", "-=", "*=", "/="]},
                            "hidden": {"operator": ["clear", "remove_first", "remove_last"]},
                        },
                    },
                },
                default=[],
                widget="assignments",
                entry="Assignment",
                new={"variable": "", "operator": "set", "parameter": ""},
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
                    "group_name": {"type": _TEXT, "title": "Output"},
                    "type": _one_of("Type", VARIABLE_TYPES),
                    "variables": {
                        "type": ["array", "null"],
                        "title": "Variables",
                        "x-easel-entry": "Variable",
                        "x-easel-new": {"value": ""},
                        "items": {
                            "type": ["object", "string"],
                            "properties": {"value": {**_reference("Value"), "type": "string"}},
                        },
                    },
                },
                default=[],
                entry="Group",
                new={"group_name": "output", "type": "string", "variables": [{"value": ""}]},
            ),
            OUTPUTS,
        ),
    ),
    "DataOperations": Form(
        "Data operations",
        "data",
        "Changes objects: selects, renames and removes keys, filters, combines.",
        (
            rows("query", "Objects", "The objects that are changed.", {}, default=[], entry="Variable",
                 new={"input": ""},
                 items={"type": ["object", "string"], "properties": {"input": _reference("Value")}}),
            choice("operations", "Operation", "What is done.",
                   ("select_keys", "literal_eval", "combine", "filter_values", "append_or_update", "remove_keys",
                    "rename_keys"), default="select_keys"),
            rows("select_keys", "Keys", "The keys that stay.", {}, when={"operations": ["select_keys"]}, entry="Key",
                 new={"name": ""}, items={"type": ["object", "string"], "properties": {"name": _KEY}}),
            rows("remove_keys", "Keys", "The keys that are removed.", {}, when={"operations": ["remove_keys"]},
                 entry="Key", new={"name": ""}, items={"type": ["object", "string"], "properties": {"name": _KEY}}),
            rows("filter_values", "Conditions", "An object stays if all of them hold.",
                 {"key": _KEY, "operator": _one_of("Operator", FILTER_OPERATORS), "value": _value("Compared with")},
                 when={"operations": ["filter_values"]}, entry="Condition",
                 new={"key": "", "operator": "=", "value": ""}),
            rows("updates", "Values", "The values that are set in each object.",
                 {"key": _KEY, "value": _value("Value")},
                 when={"operations": ["append_or_update"]}, entry="Value", new={"key": "", "value": ""}),
            rows("rename_keys", "Names", "The keys that get another name.",
                 {"old_key": {"type": _TEXT, "title": "Key"}, "new_key": {"type": _TEXT, "title": "New name"}},
                 when={"operations": ["rename_keys"]}, entry="Key", new={"old_key": "", "new_key": ""}),
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
            mapping("filter", "Condition", "What an item is compared with.", when={"operations": ["filter"]},
                    properties={"operator": _one_of("Operator", FILTER_OPERATORS),
                                "value": {**_value("Compared with"), "x-easel-widget": "text"}},
                    widget="object", default={"operator": "=", "value": ""}),
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
            texts("delimiters", "Delimiters", "Where the text is split, or what is put between.", default=[","],
                  entry="Delimiter"),
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
                     "ref": _reference("Reference"),
                     "value": {**_value("Value"), "description": "What is sent if there is no reference."},
                 }, default=[], entry="Value", new={"key": "", "ref": "", "value": ""}),
            choice("datatype", "Body", "How values are sent.", ("json", "formdata"), default="json"),
            form_field("body", "Own body", "A body in place of the values.", _ANY, widget="prompt",
                       section="advanced"),
            text("proxy", "Proxy", "The address of a proxy.", widget="secret", section="advanced"),
            number("timeout", "Time limit", "Seconds.", default=60, section="advanced"),
            switch("clean_html", "Text only", "Whether HTML is converted to text."),
            *ERRORS,
            OUTPUTS,
        ),
        outputs={"result": "string"},
    ),
    "DocGenerator": Form(
        "Document",
        "data",
        "Makes a document of a text in Markdown: PDF, Word, HTML.",
        (
            text("content", "Text", "The text in Markdown, with references.", default="", widget="prompt"),
            choice("output_format", "Format", "The format of the document.",
                   ("pdf", "docx", "txt", "markdown", "html"), default="pdf"),
            text("filename", "Name of the file", "Without one it is named after the time.", default=""),
            text("header_text", "Header", "The header of each page.", default="", section="advanced"),
            text("footer_text", "Footer", "The footer of each page.", default="", section="advanced"),
            text("watermark_text", "Watermark", "A text behind each page.", default="", section="advanced"),
            switch("add_page_numbers", "Page numbers", "Whether pages are numbered.", default=True,
                   section="advanced"),
            switch("add_timestamp", "Time", "Whether the document says when it was made.", default=True,
                   section="advanced"),
            number("font_size", "Font size", "In points, 12 or more.", default=12, section="advanced"),
            switch("include_download_info_in_content", "Link in the text",
                   "Whether a Message shows the file as JSON in its text, too.", default=False, section="advanced"),
            *ERRORS,
            DESCRIPTION,
            OUTPUTS,
        ),
        outputs={"doc_id": "string", "filename": "string", "mime_type": "string", "size": "number",
                 "download": "string"},
    ),
    "ExcelProcessor": Form(
        "Spreadsheet",
        "data",
        "Reads, merges and writes spreadsheets.",
        (
            choice("operation", "Operation", "What is done.", ("read", "merge", "transform", "output", "write"),
                   default="read"),
            texts("input_files", "Files", "The variables with the files.", default=[], widget="references",
                  when={"operation": ["read", "merge"]}, entry="File"),
            suggestion("sheet_selection", "Sheets", "`all`, `first`, or names with commas between them.",
                       ("all", "first"), default="all", when={"operation": ["read", "merge"]}, widget="text"),
            suggestion("merge_strategy", "Merge", "`concat` puts rows below each other, `join` joins them by a column.",
                       ("concat", "join"), default="concat", when={"operation": ["merge"]}),
            text("join_on", "Column", "The column by which rows are joined.", default="",
                 when={"merge_strategy": ["join"]}),
            text("transform_data", "Data", "The rows, or an object of sheets.", default="", widget="reference",
                 when={"operation": ["transform", "output", "write"]}),
            text("transform_instructions", "Notes", "What should be done with the data. Runs do not read it.",
                 default="", widget="multiline", when={"operation": ["transform"]}, section="advanced"),
            choice("output_format", "Format", "The format of the file.", ("xlsx", "csv"), default="xlsx",
                   when={"operation": ["output", "write"]}),
            text("output_filename", "Name of the file", "Without an extension.", default="output",
                 when={"operation": ["output", "write"]}),
            text("sheet_name", "Sheet", "The sheet that is read, in documents of RAGFlow's Go port.", default="",
                 section="advanced"),
            *ERRORS,
            DESCRIPTION,
            OUTPUTS,
        ),
        outputs={"data": "Object", "summary": "string", "markdown": "string", "attachment": "Object"},
    ),
    "Browser": Form(
        "Browser",
        "model",
        "A model carries out a task in a web browser.",
        (
            model("llm_id", "Model", "The model that acts.", ("chat", "vision"), default=""),
            text("prompts", "Task", "What is done, with references.", default="{sys.query}", widget="prompt"),
            number("max_steps", "Steps", "How many steps the model may take at most.", default=30),
            form_field("upload_sources", "Files", "Files that pages may get: references, ids or addresses.",
                       ("array", "string", "object", "null"), default=[], widget="prompts", entry="File"),
            switch("persist_session", "Keep the session", "Whether the next run finds cookies and sign-ins again.",
                   default=True, section="advanced"),
            switch("headless", "Without a window", "Whether the browser has no window.", default=True,
                   section="advanced"),
            switch("enable_default_extensions", "Extensions", "Whether the browser has its usual extensions.",
                   default=False, section="advanced"),
            switch("chromium_sandbox", "Chromium's sandbox", "Whether Chromium isolates pages by its own sandbox.",
                   default=False, section="advanced"),
            number("temperature", "Temperature", "How much the model's decisions vary, from 0 to 1.",
                   section="advanced"),
            *ERRORS,
            DESCRIPTION,
            OUTPUTS,
        ),
        outputs={"content": "string", "downloaded_files": "Array<Object>"},
    ),
    "DeepResearch": Form(
        "Deep research",
        "model",
        "Searches until the results are sufficient, and answers from them.",
        (
            *MODEL,
            text("query", "Question", "What is researched, with references.", default="{sys.query}", widget="prompt"),
            form_field("tools", "Sources", "The tools that search: one at least.", ("array", "null"), default=[],
                       items={"type": ["object", "string"]}, widget="tools"),
            number("depth", "Depth", "How many levels of further questions there may be, from 1 to 4.", default=3),
            text("sys_prompt", "System prompt", "What the model is, and how it answers.", default="",
                 widget="prompt"),
            switch("answers", "Answer", "Whether a model answers; without it there are only the sources.",
                   default=True),
            text("empty_response", "Answer without sources", "What is said if nothing was found.", default="",
                 widget="prompt"),
            switch("cite", "Citations", "Whether the answer cites its sources.", default=True),
            rows("prompts", "User prompt", "Messages of an LLM. A research has its question instead.", {},
                 widget="hidden"),
            text("visual_files_var", "Pictures", "The variable with the files that the model sees.",
                 widget="reference", section="advanced"),
            HISTORY,
            *ERRORS,
            DESCRIPTION,
            OUTPUTS,
        ),
        outputs={"content": "string", "formalized_content": "string", "json": "Array<Object>"},
    ),
    "Answer": Form(
        "Answer",
        "other",
        "Shows what the nodes before it say, and waits for the user. Old documents have it.",
        (
            form_field("says", "Texts", "What is shown; it follows from the nodes before.",
                       ("array", "null"), widget="hidden"),
            DESCRIPTION,
            OUTPUTS,
        ),
        outputs={"answer": "string", "content": "string"},
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
