"""The list of all tools. `find` looks a tool up by class name, function name or alias, in upper or lower case."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from canvas.document import component_names
from components.tools.academic.arxiv import ARXIV
from components.tools.academic.bgpt import BGPT
from components.tools.academic.google_scholar import GOOGLE_SCHOLAR
from components.tools.academic.pubmed import PUBMED
from components.tools.code.code_exec import CODE_EXEC
from components.tools.deepl import DEEPL
from components.tools.email.send import EMAIL
from components.tools.finance.akshare import AKSHARE
from components.tools.finance.jin10 import JIN10
from components.tools.finance.tushare import TUSHARE
from components.tools.finance.wencai import WENCAI
from components.tools.finance.yahoo_finance import YAHOO_FINANCE
from components.tools.framework.base import Tool
from components.tools.framework.retired import RETIRED
from components.tools.github import GITHUB
from components.tools.qweather import QWEATHER
from components.tools.retrieval import RETRIEVAL
from components.tools.sql.exesql import EXESQL
from components.tools.web_search.crawler import CRAWLER
from components.tools.web_search.duckduckgo import DUCKDUCKGO
from components.tools.web_search.google import GOOGLE
from components.tools.web_search.keenable import KEENABLE_SEARCH
from components.tools.web_search.querit import QUERIT_CONTENTS, QUERIT_SEARCH
from components.tools.web_search.searxng import SEARXNG
from components.tools.web_search.tavily import TAVILY_EXTRACT, TAVILY_SEARCH
from components.tools.web_search.wikipedia import WIKIPEDIA

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
    """Return the tool of this class name, function name or alias; None if there is none."""
    return TOOLS.get(name.lower())


def add(tool: Tool[Any]) -> None:
    """Register a plug-in's tool. The caller (components/plugins.py) has checked that its name is free."""
    _by_name[tool.name.lower()] = _by_name[tool.function.lower()] = tool
