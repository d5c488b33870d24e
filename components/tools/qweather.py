"""QWeather: weather, indices of daily life and air quality from qweather.com.

DSL: `query`, `web_apikey`, `lang`, `type`, `user_type`, `time_period`, and `api_host` (an addition of Easel): the
vendor gives each account a host of its own, where the key goes into a header. The author chooses that host, so the
address policy checks it. Data are shown as JSON (docs/tools.md, row T12). An error code of the vendor does not fail the
node: its meaning is the result, as upstream, after the retries if the status is a transient one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from pydantic import BeforeValidator

from canvas.errors import HttpFailed, ToolError
from components.context import NodeContext
from components.text.templates.templates import json_text, value_text
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import one_of
from providers.interfaces import HttpCall, HttpResponse

GEO, GEO_PATH, DATA_PATH = "https://geoapi.qweather.com", "/v2/city/lookup", "/v7/"
DATA = {"free": "https://devapi.qweather.com", "paid": "https://api.qweather.com"}
CODE_OK = "200"
LANGUAGES = (
    *("zh", "zh-hant", "en", "de", "es", "fr", "it", "ja", "ko", "ru", "hi", "th", "ar", "pt", "bn", "ms", "nl"),
    *("el", "la", "sv", "id", "pl", "tr", "cs", "et", "vi", "fil", "fi", "he", "is", "nb"),
)
TYPES, PERIODS = ("weather", "indices", "airquality"), ("now", "3d", "7d", "10d", "15d", "30d")

_CODE_MEANINGS: Mapping[str, str] = {
    "204": "QWeather has no data of this kind for the place.",
    "400": "QWeather does not understand the request: a parameter is wrong or missing.",
    "401": "QWeather does not accept the key, or the key is of another kind of service.",
    "402": "The account has used up its requests, or its balance does not cover more.",
    "403": "The account may not ask for this data.",
    "404": "QWeather does not know the place or the data.",
    "429": "The account asks more often in a minute than it may.",
    "500": "QWeather failed, or did not answer in time.",
}
"""The meanings of the error codes in the vendor's answers."""

_JWT = re.compile(r"eyJ[\w-]*\.[\w-]+\.[\w-]+")


class _ErrorCodeReturned(Exception):
    """Raised for an answer with an error code; its text is the result."""


def _parse_host(value: Any) -> str:
    """Return a host as `https://host`, or with the given scheme; "" for none. Raises ValueError for anything else."""
    text = value_text(value).strip()
    if not text:
        return ""
    address = text if "://" in text else f"https://{text}"
    split = _split_address(address)
    if split is None or f"{split.scheme}://{split.netloc}" != address.rstrip("/"):
        raise ValueError("QWeather API host should be a host alone, such as abc.qweatherapi.com")
    return address.rstrip("/")


def _split_address(address: str) -> SplitResult | None:
    """Split an http or https address; None for an invalid one and for one with a user name."""
    try:
        split = urlsplit(address)
        return split if split.scheme in ("http", "https") and split.hostname and "@" not in split.netloc else None
    except ValueError:
        return None


class QWeatherParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("web_apikey",)

    web_apikey: Any = "xxx"
    lang: Annotated[str, one_of("QWeather language", LANGUAGES)] = "zh"
    type: Annotated[str, one_of("QWeather type", TYPES)] = "weather"
    user_type: Annotated[str, one_of("QWeather user type", tuple(DATA))] = "free"
    time_period: Annotated[str, one_of("QWeather time period", PERIODS)] = "now"
    api_host: Annotated[str, BeforeValidator(_parse_host)] = ""


@dataclass(frozen=True, slots=True)
class _WeatherAccount:
    """The addresses and credentials of an account."""

    geo: str
    data: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    async def get(self, ctx: NodeContext, url: str, query_params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the vendor's answer. Raises _ErrorCodeReturned for one with an error code."""
        call = HttpCall("GET", url, params={**query_params, **self.params}, headers=self.headers)
        reply = await http.send(ctx, "QWeather", call)
        code = _answer_code(reply)
        if not reply.is_success:
            refusal = http.error_from_reply(reply, _error_text(reply))
            if code in ("", CODE_OK):
                raise refusal
            if refusal.retryable:
                raise HttpFailed(refusal.message, retryable=True, **{**refusal.details, "result": _code_meaning(code)})
        body = http.parse_object(reply)
        if not code:
            raise ToolError('The answer has no "code".')
        if code != CODE_OK:
            raise _ErrorCodeReturned(_code_meaning(code))
        return body


async def report(params: QWeatherParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    account = _account(params)
    try:
        found = await account.get(ctx, account.geo, {"location": value_text(arguments["query"]).strip()})
        text = await _fetch_report(_place_id(found), params, account, ctx)
    except _ErrorCodeReturned as refused:
        text = str(refused)
    return ToolResult({"formalized_content": text}, answer=text)


async def _fetch_report(place: str, params: QWeatherParams, account: _WeatherAccount, ctx: NodeContext) -> str:
    query_params = {"location": place, "lang": params.lang}
    if params.type == "indices":
        body = await account.get(ctx, f"{account.data}indices/1d", {**query_params, "type": 0})
        return _indices([row for row in http.require_list(body.get("daily"), "daily") if isinstance(row, Mapping)])
    if params.type == "airquality":
        return _current_data(await account.get(ctx, f"{account.data}air/now", query_params))
    body = await account.get(ctx, f"{account.data}weather/{params.time_period}", query_params)
    if params.time_period == "now":
        return _current_data(body)
    days = http.require_list(body.get("daily"), "daily")
    return "\n".join(json_text(day) for day in days if isinstance(day, Mapping))


def _account(params: QWeatherParams) -> _WeatherAccount:
    key = value_text(params.web_apikey).strip()
    if not params.api_host:
        return _WeatherAccount(GEO + GEO_PATH, DATA[params.user_type] + DATA_PATH, params={"key": key})
    is_token = _JWT.fullmatch(key) is not None
    headers = {"Authorization": f"Bearer {key}"} if is_token else {"X-QW-Api-Key": key}
    return _WeatherAccount(f"{params.api_host}/geo{GEO_PATH}", params.api_host + DATA_PATH, headers=headers)


def _place_id(found: Mapping[str, Any]) -> str:
    """Return the vendor's id of the best match. Raises ToolError if there is none."""
    places = http.require_list(found.get("location"), "location")
    place = places[0].get("id") if places and isinstance(places[0], Mapping) else None
    if not isinstance(place, str | int) or not str(place).strip():
        raise ToolError("QWeather does not know this place.")
    return str(place)


def _current_data(body: Mapping[str, Any]) -> str:
    now = body.get("now")
    if not isinstance(now, Mapping):
        raise ToolError('The answer has no "now".')
    return json_text(now)


def _indices(rows: list[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    lines = (": ".join((_text(row, "name"), f"{_text(row, 'category')}, {_text(row, 'text')}")) for row in rows)
    return "\n".join([_text(rows[0], "date"), *lines])


def _text(row: Mapping[str, Any], name: str) -> str:
    return value_text(row.get(name))


def _answer_code(reply: HttpResponse) -> str:
    """Return the code in an answer; "" if there is none."""
    try:
        code = http.parse_object(reply).get("code")
    except ToolError:
        return ""
    return str(code) if isinstance(code, str | int) else ""


def _code_meaning(code: str) -> str:
    """Return the meaning of an error code."""
    return f"**Error** {_CODE_MEANINGS.get(code, f'QWeather API returned code {code}.')}"


def _error_text(reply: HttpResponse) -> str:
    """Return the error text of newer answers, which have it under `error`; "" if there is none."""
    try:
        error = http.parse_object(reply).get("error")
    except ToolError:
        return ""
    text = (error.get("detail") or error.get("title")) if isinstance(error, Mapping) else ""
    return f"HTTP {reply.status}: {text[: http.MAX_ERROR_BODY]}" if isinstance(text, str) and text else ""


QWEATHER = Tool(
    "QWeather",
    "qweather",
    QWeatherParams,
    description="Tells the weather of a place: now, or for days to come, as this canvas has set it up.",
    arguments={
        "query": Argument(
            "string", "Name of one city or district, and nothing else.", required=True, default="{sys.query}"
        )
    },
    call=report,
    effect="idempotent",
    outputs=("formalized_content",),
)
