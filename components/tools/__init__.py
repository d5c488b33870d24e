"""Which tools there are: a list to read, one line each. Names, function names and aliases are found in any case."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from canvas.document import component_names
from components.tools.akshare import AKSHARE
from components.tools.arxiv import ARXIV
from components.tools.base import Tool
from components.tools.bgpt import BGPT
from components.tools.code_exec import CODE_EXEC
from components.tools.crawler import CRAWLER
from components.tools.deepl import DEEPL
from components.tools.duckduckgo import DUCKDUCKGO
from components.tools.email import EMAIL
from components.tools.exesql import EXESQL
from components.tools.github import GITHUB
from components.tools.google import GOOGLE
from components.tools.google_scholar import GOOGLE_SCHOLAR
from components.tools.jin10 import JIN10
from components.tools.keenable import KEENABLE_SEARCH
from components.tools.pubmed import PUBMED
from components.tools.querit import QUERIT_CONTENTS, QUERIT_SEARCH
from components.tools.qweather import QWEATHER
from components.tools.retired import RETIRED
from components.tools.retrieval import RETRIEVAL
from components.tools.searxng import SEARXNG
from components.tools.tavily import TAVILY_EXTRACT, TAVILY_SEARCH
from components.tools.tushare import TUSHARE
from components.tools.wencai import WENCAI
from components.tools.wikipedia import WIKIPEDIA
from components.tools.yahoo_finance import YAHOO_FINANCE

_LISTED: tuple[Tool[Any], ...] = (
    AKSHARE,
    ARXIV,
    BGPT,
    CODE_EXEC,
    CRAWLER,
    DEEPL,
    DUCKDUCKGO,
    EMAIL,
    EXESQL,
    GITHUB,
    GOOGLE,
    GOOGLE_SCHOLAR,
    JIN10,
    KEENABLE_SEARCH,
    PUBMED,
    QUERIT_CONTENTS,
    QUERIT_SEARCH,
    QWEATHER,
    RETRIEVAL,
    SEARXNG,
    TAVILY_EXTRACT,
    TAVILY_SEARCH,
    TUSHARE,
    WENCAI,
    WIKIPEDIA,
    YAHOO_FINANCE,
    *RETIRED,
)
_ALIASES: Mapping[str, Tool[Any]] = {
    alias.lower(): tool for tool in _LISTED for alias in component_names.TOOLS.get(tool.name, ())
}

_by_name: dict[str, Tool[Any]] = {
    **{tool.name.lower(): tool for tool in _LISTED}, **{tool.function: tool for tool in _LISTED}, **_ALIASES
}  # fmt: skip
TOOLS: Mapping[str, Tool[Any]] = MappingProxyType(_by_name)


def find(name: str) -> Tool[Any] | None:
    """The tool of this class name, function name or alias; None if there is none."""
    return TOOLS.get(name.lower())


def add(tool: Tool[Any]) -> None:
    """Make a tool from outside known (components/plugins.py). Its name is free; whoever adds it has seen to that."""
    _by_name[tool.name.lower()] = _by_name[tool.function.lower()] = tool
