"""Fields that the forms of several components have."""

from collections.abc import Sequence
from typing import Any

from components.forms.fields import KINDS, FormField, choice, form_field, mapping, number, rows, switch, text, texts

OUTPUTS = mapping("outputs", "Outputs", "What later nodes can refer to.", widget="outputs")
ANSWER_OUTPUTS = mapping(
    "outputs",
    "Outputs",
    "The outputs of the node; `structured` is the JSON Schema of a structured answer.",
    widget="structured_outputs",
)
DESCRIPTION = text(
    "description",
    "Description",
    "What the node does. A model reads it if the node is its tool.",
    widget="multiline",
    section="advanced",
)
HISTORY = number(
    "message_history_window_size",
    "Messages of the history",
    "How many earlier messages the model gets.",
    default=12,
    section="advanced",
)

ERRORS: tuple[FormField, ...] = (
    number("max_retries", "Retries", "How often a failed attempt is repeated.", default=0, section="failure"),
    number(
        "delay_after_error",
        "Delay after an error",
        "Seconds before a failed attempt is repeated.",
        default=1,
        section="failure",
    ),
    choice(
        "exception_method",
        "After the last attempt",
        "`comment` continues with the default value, `goto` with other nodes. Without either the run fails.",
        ("comment", "goto"),
        section="failure",
    ),
    form_field(
        "exception_default_value",
        "Default value",
        "The output of a node that has failed: a text, or JSON.",
        ("string", "number", "boolean", "object", "array", "null"),
        widget="text",
        when={"exception_method": ["comment"]},
        section="failure",
    ),
    texts(
        "exception_goto",
        "Continue with",
        "The nodes with which the run continues; they follow from the edges.",
        when={"exception_method": ["goto"]},
        widget="nodes",
        section="failure",
    ),
    text(
        "exception_comment",
        "Comment",
        "A text about the failure. RAGFlow's editor stores it; runs do not read it.",
        when={"exception_method": ["comment"]},
        section="failure",
    ),
)


def model(name: str, title: str, description: str, kinds: Sequence[str], **more: Any) -> FormField:
    """Return a field with a model of some kinds."""
    return text(name, title, description, **{"widget": "model", KINDS: list(kinds), **more})


def _setting(name: str, flag: str, title: str, description: str) -> tuple[FormField, FormField]:
    """Return the switch with which the model gets a setting, and the setting."""
    return (
        switch(flag, f"Set {title}", "Otherwise the model's own setting counts.", section="model"),
        number(name, title[0].upper() + title[1:], description, when={flag: [True]}, section="model"),
    )


MODEL: tuple[FormField, ...] = (
    model("llm_id", "Model", "The model that is asked.", ("chat", "vision"), default=""),
    choice("parameter", "Freedom", "A preset of RAGFlow's editor for the settings below. Runs do not read it.",
           ("Improvise", "Precise", "Balance", "Custom", "Creative"), section="model"),
    *_setting("temperature", "temperatureEnabled", "temperature", "How much answers vary, from 0 to 1."),
    *_setting("top_p", "topPEnabled", "Top P", "The share of likely words that the model chooses from, up to 1."),
    *_setting("presence_penalty", "presencePenaltyEnabled", "presence penalty",
              "Lowers the chance of words that have occurred, up to 1."),
    *_setting("frequency_penalty", "frequencyPenaltyEnabled", "frequency penalty",
              "Lowers the chance of words by how often they have occurred, up to 1."),
    *_setting("max_tokens", "maxTokensEnabled", "limit of tokens", "How many tokens an answer has at most."),
    form_field("thinking", "Thinking", "Whether a model that can think before it answers does so.",
               ("string", "boolean", "object", "null"), widget="choice", examples=["enabled", "disabled"],
               section="model"),
    text("llm_filter", "Kinds of models", "Which kinds RAGFlow's editor lists. Runs do not read it.",
         section="model"),
    form_field("tenant_llm_id", "Id of the model", "RAGFlow's own id of the model. Runs do not read it.",
               ("integer", "string", "null"), section="model"),
)  # fmt: skip
PROMPTS: tuple[FormField, ...] = (
    text("sys_prompt", "System prompt", "What the model is, and how it answers.", default="", widget="prompt"),
    rows(
        "prompts",
        "User prompt",
        "The messages that follow the system prompt and the history.",
        {
            "role": {"type": "string", "title": "Role", "enum": ["user", "assistant", "system"]},
            "content": {"type": "string", "title": "Text", "x-easel-widget": "prompt"},
        },
        default=[{"role": "user", "content": "{sys.query}"}],
        widget="prompts",
        entry="Message",
        new={"role": "user", "content": ""},
    ),
    switch("cite", "Citations", "Whether the answer cites passages of knowledge bases.", default=True),
    text("visual_files_var", "Pictures", "The variable with the files that the model sees.", widget="reference"),
    switch("showStructuredOutput", "Structured output",
           "Whether the answer is an object, whose schema the editor then shows.", default=False),
)  # fmt: skip

FORM_INPUTS = mapping(
    "inputs",
    "Fields",
    "What is asked for. Each field is an output by its name.",
    default={},
    widget="form_fields",
)
