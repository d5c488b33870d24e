"""DeepL: translation of a text.

DSL: `query`, `auth_key`, `source_lang` (`auto` is an addition of Easel: the vendor detects the language),
`target_lang`. Keys that end in `:fx` belong to the vendor's free service. Transient failures are retried twice,
whatever the node says, and errors begin with `DeepL error: `, as upstream.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from canvas.errors import HttpFailed, ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import one_of
from providers.interfaces import HttpCall

_COMMON = (
    *("AR", "BG", "CS", "DA", "DE", "EL", "ES", "ET", "FI", "FR", "HU", "ID", "IT", "JA", "KO", "LT", "LV", "NB"),
    *("NL", "PL", "RO", "RU", "SK", "SL", "SV", "TR", "UK", "ZH"),
)
AUTO_DETECT = "auto"
SOURCES = (*_COMMON, "EN", "PT", AUTO_DETECT)
TARGETS = (*_COMMON, "EN-GB", "EN-US", "PT-BR", "PT-PT")


class DeepLParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("auth_key",)

    auth_key: Any = "xxx"
    source_lang: Annotated[str, one_of("Source language", SOURCES)] = "ZH"
    target_lang: Annotated[str, one_of("Target language", TARGETS)] = "EN-GB"


async def translate(params: DeepLParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    key = value_text(params.auth_key)
    host = "api-free.deepl.com" if key.endswith(":fx") else "api.deepl.com"
    call = HttpCall(
        "POST",
        f"https://{host}/v2/translate",
        headers={"Authorization": f"DeepL-Auth-Key {key}"},
        json={
            "text": [value_text(arguments["query"])],
            **({} if params.source_lang == AUTO_DETECT else {"source_lang": params.source_lang}),
            "target_lang": params.target_lang,
        },
    )
    try:
        text = _translation(http.parse_object(await http.fetch(ctx, "DeepL", call)))
    except HttpFailed as failed:
        raise HttpFailed(_label_error(failed), retryable=failed.retryable, **failed.details) from failed
    except ToolError as failed:
        raise ToolError(_label_error(failed)) from failed
    return ToolResult({"formalized_content": text}, answer=text)


def _translation(body: Mapping[str, Any]) -> str:
    translations = http.require_list(body.get("translations"), "translations")
    if not translations or not isinstance(translations[0], Mapping):
        raise ToolError("the answer has no translation")
    return value_text(translations[0].get("text"))


def _label_error(failed: ToolError) -> str:
    return f"DeepL error: {failed.message}"


DEEPL = Tool(
    "DeepL",
    "deepl_translate",
    DeepLParams,
    description="Translates a text with DeepL, from and to the languages that were set up.",
    arguments={"query": Argument("string", "The text to translate.", required=True, default="{sys.query}")},
    call=translate,
    effect="idempotent",
    retries=2,
    outputs=("formalized_content",),
)
