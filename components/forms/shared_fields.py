"""Fields that the forms of several components have."""

from components.forms.fields import FormField, choice, form_field, mapping, number, rows, switch, text, texts

OUTPUTS = mapping("outputs", "Outputs", "The outputs of the node, {name: {type, value}}.", widget="outputs")
DESCRIPTION = text("description", "Description", "What the node does. A model reads it if the node is its tool.")
HISTORY = number(
    "message_history_window_size", "Messages of the history", "How many earlier messages the model gets.", default=12
)

ERRORS: tuple[FormField, ...] = (
    number("max_retries", "Retries", "How often a failed attempt is repeated.", default=0),
    number("delay_after_error", "Delay after an error", "Seconds before a failed attempt is repeated.", default=1),
    choice(
        "exception_method",
        "When it fails",
        "What happens after the last failed attempt: `comment` continues with the default value, `goto` with other "
        "nodes. Empty: the run fails.",
        ("comment", "goto"),
    ),
    form_field(
        "exception_default_value",
        "Default value",
        "The output of a node that has failed.",
        ("string", "number", "boolean", "object", "array", "null"),
        when={"exception_method": ["comment"]},
    ),
    texts(
        "exception_goto",
        "Continue with",
        "The nodes with which the run continues; they follow from the edges.",
        when={"exception_method": ["goto"]},
        widget="nodes",
    ),
    text(
        "exception_comment",
        "Comment",
        "A text about the failure. RAGFlow's editor stores it; runs do not read it.",
        when={"exception_method": ["comment"]},
    ),
)

MODEL: tuple[FormField, ...] = (
    text("llm_id", "Model", "The model that is asked.", default="", widget="model"),
    text("llm_filter", "Kinds of models", "Which kinds the picker of models lists. Runs do not read it."),
    form_field("tenant_llm_id", "Id of the model", "RAGFlow's own id of the model. Runs do not read it.",
               ("integer", "string", "null")),
    choice("parameter", "Freedom", "A preset of the settings below. Runs do not read it.",
           ("Improvise", "Precise", "Balance", "Custom", "Creative")),
    number("temperature", "Temperature", "How much answers vary, from 0.", when={"temperatureEnabled": [True]}),
    number("top_p", "Top P", "The share of likely words that the model chooses from.", when={"topPEnabled": [True]}),
    number("presence_penalty", "Presence penalty", "Lowers the chance of words that have occurred.",
           when={"presencePenaltyEnabled": [True]}),
    number("frequency_penalty", "Frequency penalty", "Lowers the chance of words by how often they have occurred.",
           when={"frequencyPenaltyEnabled": [True]}),
    number("max_tokens", "Most tokens", "The most tokens of an answer.", when={"maxTokensEnabled": [True]}),
    switch("temperatureEnabled", "Set the temperature", "Whether the temperature is sent."),
    switch("topPEnabled", "Set Top P", "Whether Top P is sent."),
    switch("presencePenaltyEnabled", "Set the presence penalty", "Whether the presence penalty is sent."),
    switch("frequencyPenaltyEnabled", "Set the frequency penalty", "Whether the frequency penalty is sent."),
    switch("maxTokensEnabled", "Set the most tokens", "Whether the limit is sent."),
    form_field("thinking", "Thinking", "Whether a model that can think before it answers does so.",
               ("string", "boolean", "object", "null"), widget="text"),
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
    ),
    switch("cite", "Citations", "Whether the answer cites passages of knowledge bases.", default=True),
    text("visual_files_var", "Pictures", "The variable with the files that the model sees.", widget="reference"),
    switch("showStructuredOutput", "Structured output", "Whether the editor shows the schema of the answer."),
)

FORM_INPUTS = mapping(
    "inputs",
    "Fields",
    "The fields of the form, {name: {name, type, optional, options, value}}.",
    default={},
    widget="form_fields",
)
