"""The names components and tools go by: any case, and a tool's function name or alias, become the class name."""

from collections.abc import Mapping

from canvas.document import legacy

COMPONENTS = (
    "Agent",
    "Answer",
    "Begin",
    "Browser",
    "Categorize",
    "DataOperations",
    "DeepResearch",
    "DocGenerator",
    "ExcelProcessor",
    "ExitLoop",
    "Invoke",
    "Iteration",
    "IterationItem",
    "ListOperations",
    "LLM",
    "Loop",
    "LoopItem",
    "Message",
    "StringTransform",
    "Switch",
    "UserFillUp",
    "VariableAggregator",
    "VariableAssigner",
)
TOOLS: Mapping[str, tuple[str, ...]] = {
    "AkShare": ("akshare_stock_news",),
    "ArXiv": ("arxiv_search",),
    "BGPT": ("bgpt_search",),
    "CodeExec": ("execute_code", "code_exec"),
    "Crawler": ("web_crawler",),
    "DeepL": ("deepl_translate",),
    "DuckDuckGo": ("duckduckgo_search",),
    "Email": (),
    "ExeSQL": ("execute_sql",),
    "GitHub": ("github_search",),
    "Google": ("google_search",),
    "GoogleScholar": ("google_scholar_search", "google_scholar"),
    "Jin10": (),
    "KeenableSearch": ("keenable_search", "keenable"),
    "PubMed": ("pubmed_search",),
    "QueritContents": ("querit_contents",),
    "QueritSearch": ("querit_search", "querit"),
    "QWeather": (),
    "Retrieval": ("search_my_dateset", "search_my_dataset", "SearchMyDataset"),
    "SearXNG": ("searxng_search",),
    "TavilyExtract": ("tavily_extract",),
    "TavilySearch": ("tavily_search", "tavily"),
    "TuShare": (),
    "WenCai": ("iwencai",),
    "Wikipedia": ("wikipedia_search",),
    "YahooFinance": ("yahoo_finance",),
}

_CANONICAL: Mapping[str, str] = {
    **{name.lower(): name for name in (*COMPONENTS, *TOOLS)},
    **{alias.lower(): name for name, also in TOOLS.items() for alias in also},
}


def canonical(name: str) -> str:
    """The class name for any accepted spelling; unknown names are given back as written."""
    today = legacy.current_name(name)
    return _CANONICAL.get(today.lower(), today)
