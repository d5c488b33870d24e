"""The forms of tools: what an author sets. The arguments of a call, which a node has too, are described by the tool.

A key has no default here, so that a new node does not contain a placeholder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.forms.fields import FormField, form_field, mapping, number, suggestion, switch, text, texts
from components.forms.shared_fields import model
from components.tools import deepl, qweather
from components.tools.academic import arxiv
from components.tools.code import code_exec
from components.tools.finance import jin10, tushare, wencai
from components.tools.sql import read_only_rules
from components.tools.web_search import keenable, tavily, wikipedia


@dataclass(frozen=True, slots=True)
class ToolForm:
    """What an author sets for a tool. `title`: how the palette calls it; `outputs`: types of its outputs by name."""

    title: str
    fields: tuple[FormField, ...]
    arguments: tuple[FormField, ...] = ()  # arguments of a call that need another control than their type has


def _results(description: str = "How many results there are at most.", default: int = 10) -> FormField:
    return number("top_n", "Results", description, default=default)


def _key(name: str, title: str, description: str) -> FormField:
    return form_field(name, title, description, ("string", "number", "null"), widget="secret")


def _list(name: str, title: str, description: str, entry: str, **more: Any) -> FormField:
    return texts(name, title, description, entry=entry, **more)


TOOL_FORMS: Mapping[str, ToolForm] = {
    "AkShare": ToolForm("AkShare", (_results("How many news there are at most."),)),
    "ArXiv": ToolForm(
        "arXiv",
        (
            _results(default=12),
            suggestion("sort_by", "Order", "What comes first.", arxiv.ORDERS, default="submittedDate"),
        ),
    ),
    "BGPT": ToolForm(
        "BGPT",
        (
            _results(),
            _key("api_key", "API key", "Without one there are few searches."),
            number("days_back", "Age", "How many days old papers are at most; empty for any age."),
        ),
    ),
    "CodeExec": ToolForm(
        "Code",
        (
            suggestion("lang", "Language", "The language of the program.", tuple(code_exec.LANGUAGES),
                       default="python"),
            form_field("script", "Program", "It defines `main`, which gets the arguments and returns the result.",
                       ("string", "null"), widget="code", default=code_exec.DEFAULT_SCRIPT),
            mapping("arguments", "Arguments", "The arguments of `main`, each with a reference to its value.",
                    widget="arguments", default={}),
            mapping("outputs", "Outputs", "The result of the program: its name, and its type.",
                    widget="declared_outputs", default={"result": {"type": "String", "value": ""}}),
        ),
    ),
    "Crawler": ToolForm(
        "Web page",
        (
            suggestion("extract_type", "Result", "What is made of the page.", ("html", "markdown", "content"),
                       default="markdown"),
            suggestion("engine", "Engine", "`http` reads the page as it is sent, `browser` runs its scripts, too.",
                       ("http", "browser"), default="http"),
            _key("proxy", "Proxy", "The address of a proxy, which may contain a password."),
        ),
    ),
    "DeepL": ToolForm(
        "DeepL",
        (
            _key("auth_key", "Key", "The authentication key of a DeepL account."),
            suggestion("source_lang", "From", "The language of the text.", deepl.SOURCES, default="ZH"),
            suggestion("target_lang", "To", "The language of the translation.", deepl.TARGETS, default="EN-GB"),
        ),
    ),
    "DuckDuckGo": ToolForm(
        "DuckDuckGo",
        (
            suggestion("channel", "Kind", "Pages or news; a reference may say which.", ("text", "news"),
                       default="text"),
            _results(),
        ),
    ),
    "Email": ToolForm(
        "E-mail",
        (
            text("smtp_server", "SMTP server", "The host of the account.", default=""),
            number("smtp_port", "Port", "465 for TLS from the start, 587 for STARTTLS.", default=465),
            text("email", "Sender", "The address of the account.", default=""),
            text("smtp_username", "User", "The name for signing in, if it is not the address.", default=""),
            _key("password", "Password", "The password of the account."),
            text("sender_name", "Name of the sender", "The name that recipients see.", default=""),
        ),
    ),
    "ExeSQL": ToolForm(
        "SQL",
        (
            suggestion("db_type", "Database system", "The system that answers.", tuple(read_only_rules.DIALECTS),
                       default="mysql"),
            text("host", "Host", "The host of the database.", default=""),
            number("port", "Port", "The port of the database.", default=3306),
            text("database", "Database", "The name of the database.", default=""),
            text("username", "User", "Who signs in. It should only be able to read.", default=""),
            _key("password", "Password", "The password of the user."),
            number("max_records", "Most rows", "How many rows a query returns at most.", default=1024),
            switch("reject_all", "All or nothing", "Whether nothing runs if one of several queries is refused.",
                   default=False, section="advanced"),
            switch("bind_references", "Bind references",
                   "Whether values of references are passed beside the query instead of inside of it.", default=False,
                   section="advanced"),
        ),
    ),
    "GitHub": ToolForm(
        "GitHub",
        (
            _results(),
            _key("access_token", "Access token", "With one, more searches are allowed."),
        ),
    ),
    "Google": ToolForm(
        "Google",
        (
            _key("api_key", "API key", "The key of a SerpApi account."),
            text("country", "Country", "The two letters of the country that is searched from.", default="cn"),
            text("language", "Language", "The code of the language of the results.", default="en"),
        ),
    ),
    "GoogleScholar": ToolForm(
        "Google Scholar",
        (
            _results(default=12),
            suggestion("sort_by", "Order", "What comes first.", ("date", "relevance"), default="relevance"),
            number("year_low", "From", "The first year of publication."),
            number("year_high", "To", "The last year of publication."),
            switch("patents", "Patents", "Whether patents are among the results.", default=True),
        ),
    ),
    "Jin10": ToolForm(
        "Jin10",
        (
            suggestion("type", "Kind", "What is read.", ("flash", "calendar", "symbols", "news"), default="flash"),
            _key("secret_key", "Key", "The key of a Jin10 account."),
            suggestion("flash_type", "Kind of flash news", "The number of Jin10's category.", jin10.FLASH_TYPES,
                       default="1", when={"type": ["flash"]}),
            suggestion("calendar_type", "Calendar", "Of which market.", ("cj", "qh", "hk", "us"), default="cj",
                       when={"type": ["calendar"]}),
            suggestion("calendar_datatype", "Entries", "Which entries of the calendar.",
                       ("data", "event", "holiday"), default="data", when={"type": ["calendar"]}),
            suggestion("symbols_type", "Market", "Of which market.", ("GOODS", "FOREX", "FUTURE", "CRYPTO"),
                       default="GOODS", when={"type": ["symbols"]}),
            suggestion("symbols_datatype", "Data", "Names or prices.", ("symbols", "quotes"), default="symbols",
                       when={"type": ["symbols"]}),
            text("contain", "Contains", "Only news with this word.", default="", when={"type": ["flash"]}),
            text("filter", "Without", "Only news without this word.", default="", when={"type": ["flash"]}),
        ),
    ),
    "KeenableSearch": ToolForm(
        "Keenable",
        (
            _key("api_key", "API key", "The key of a Keenable account; `realtime` needs one."),
            suggestion("mode", "Mode", "`realtime` searches the web as it is now.", keenable.MODES, default="pro"),
            text("site", "Site", "Only this site, such as example.com.", default="", widget="prompt"),
            _results(),
        ),
    ),
    "PubMed": ToolForm(
        "PubMed",
        (
            _results(default=12),
            text("email", "E-mail", "Who asks; PubMed wants to know.", default="A.N.Other@example.com"),
            _key("api_key", "API key", "With one, more searches are allowed."),
        ),
    ),
    "QWeather": ToolForm(
        "QWeather",
        (
            _key("web_apikey", "API key", "The key of a QWeather account."),
            suggestion("type", "Report", "The weather, indices of life, or the quality of the air.", qweather.TYPES,
                       default="weather"),
            suggestion("time_period", "Time", "Now, or for how many days.", qweather.PERIODS, default="now",
                       when={"type": ["weather"]}),
            suggestion("lang", "Language", "The language of the report.", qweather.LANGUAGES, default="zh"),
            suggestion("user_type", "Account", "A free account, or a paid one.", tuple(qweather.DATA), default="free"),
            text("api_host", "Host", "The account's own API host, if it has one.", default="", section="advanced"),
        ),
    ),
    "QueritContents": ToolForm(
        "Querit: pages",
        (_key("api_key", "API key", "The key of a Querit account."),),
        arguments=(
            text("urls", "Addresses", "The addresses of 1 to 10 pages, with references.", default="", widget="prompt"),
            suggestion("format", "Format", "The form of the text.", ("text", "markdown", "html"), default="markdown"),
            number("crawl_timeout", "Time limit", "Seconds that fetching may take, from 1 to 60.", default=10),
            switch("extras_meta", "Metadata", "Whether what pages say about themselves is returned, too.",
                   default=False),
        ),
    ),
    "QueritSearch": ToolForm(
        "Querit",
        (_key("api_key", "API key", "The key of a Querit account."),),
        arguments=(
            number("count", "Results", "How many pages are returned.", default=10),
            number("chunks_per_doc", "Passages", "How many passages of each page, from 1 to 3.", default=3),
            _list("site_include", "Only these sites", "Such as example.com.", "Site", default=[]),
            _list("site_exclude", "Not these sites", "Such as example.com.", "Site", default=[]),
            text("time_range", "Age", "`d7`, `w2`, `m3`, `y1` back from now, or `2026-01-01to2026-03-31`.",
                 default="", widget="prompt"),
            _list("country_include", "Only these countries", "Pages of these countries.", "Country", default=[]),
            _list("language_include", "Only these languages", "Pages in these languages.", "Language", default=[]),
        ),
    ),
    "Retrieval": ToolForm(
        "Retrieval",
        (
            suggestion("retrieval_from", "Search in", "Knowledge bases, or memories of earlier conversations.",
                       ("dataset", "memory"), default="dataset"),
            form_field("dataset_ids", "Knowledge bases", "Those that are searched: chosen, or references to them.",
                       ("array", "string", "null"), default=[], widget="knowledge_base",
                       when={"retrieval_from": ["dataset", None, ""]}),
            form_field("memory_ids", "Memories", "Those that are searched.", ("array", "string", "null"), default=[],
                       widget="memory", when={"retrieval_from": ["memory"]}),
            text("user_id", "User", "Whose memories are searched; empty for all.", widget="prompt",
                 when={"retrieval_from": ["memory"]}),
            number("similarity_threshold", "Similarity", "How similar a passage must be at least, from 0 to 1.",
                   default=0.2),
            number("keywords_similarity_weight", "Weight of words",
                   "How much the words count beside the meaning, from 0 to 1.", default=0.5),
            number("top_n", "Results", "How many passages there are at most.", default=8),
            number("top_k", "Candidates", "How many passages are compared.", default=1024, section="advanced"),
            model("rerank_id", "Reranking model", "Puts the passages in order; none is needed.", ("rerank",),
                  default=""),
            text("empty_response", "If nothing is found", "The result then, with references.", default="",
                 widget="prompt"),
            _list("cross_languages", "Languages", "The query is translated into these, too.", "Language", default=[],
                  section="advanced"),
            mapping("meta_data_filter", "Filter", "Which documents are searched, by their metadata.", default={},
                    widget="json", section="advanced"),
            switch("use_kg", "Knowledge graph", "Whether the knowledge graph is searched, too.", default=False,
                   section="advanced"),
            switch("toc_enhance", "Tables of contents", "Whether a model chooses passages by the tables of contents.",
                   default=False, section="advanced"),
            form_field("kb_ids", "Knowledge bases (old field)", "It counts if none is chosen above.",
                       ("array", "string", "null"), widget="knowledge_base", section="advanced"),
            form_field("kb_vars", "Variables (old field)", "RAGFlow stores it; runs do not read it.",
                       ("array", "string", "null"), widget="json", section="advanced"),
        ),
    ),
    "SearXNG": ToolForm(
        "SearXNG",
        (
            text("searxng_url", "Address", "The address of a SearXNG instance.", default="", widget="prompt"),
            _results(),
        ),
    ),
    "TavilyExtract": ToolForm(
        "Tavily: pages",
        (_key("api_key", "API key", "The key of a Tavily account."),),
        arguments=(
            suggestion("extract_depth", "Depth", "`advanced` reads tables and embedded parts, too.", tavily.DEPTHS,
                       default="basic"),
            suggestion("format", "Format", "The form of the text.", tavily.FORMATS, default="markdown"),
        ),
    ),
    "TavilySearch": ToolForm(
        "Tavily",
        (
            _key("api_key", "API key", "The key of a Tavily account."),
            suggestion("search_depth", "Depth", "`advanced` finds more, and costs more.", tavily.DEPTHS,
                       default="basic"),
            number("max_results", "Results", "How many results there are at most.", default=6),
            number("days", "Days", "How many days old news are at most.", default=14, when={"topic": ["news"]}),
            switch("include_answer", "Answer", "Whether Tavily answers, too.", default=False, section="advanced"),
            switch("include_raw_content", "Whole pages", "RAGFlow stores it; runs do not read it.", default=False,
                   section="advanced"),
            switch("include_images", "Pictures", "RAGFlow stores it; runs do not read it.", default=False,
                   section="advanced"),
            switch("include_image_descriptions", "Descriptions of pictures", "Whether pictures are described.",
                   default=False, section="advanced"),
        ),
        arguments=(
            suggestion("topic", "Subject", "`news` for recent events; a reference may say which.", tavily.TOPICS,
                       default="general"),
            _list("include_domains", "Only these domains", "Such as example.com.", "Domain", default=[]),
            _list("exclude_domains", "Not these domains", "Such as example.com.", "Domain", default=[]),
        ),
    ),
    "TuShare": ToolForm(
        "TuShare",
        (
            _key("token", "Token", "The token of a TuShare account."),
            suggestion("src", "Source", "Whose news are searched.", tushare.SOURCES, default="eastmoney"),
            text("start_date", "From", "Such as 2024-01-01 09:00:00.", default="2024-01-01 09:00:00"),
            text("end_date", "To", "Such as 2024-12-31 18:00:00; empty for now.", default=""),
            text("keyword", "Word", "What the news contain, in place of the query of a call.", default=""),
        ),
    ),
    "WenCai": ToolForm(
        "WenCai",
        (
            _results(),
            suggestion("query_type", "Kind", "What is asked about.", wencai.QUERY_TYPES, default="stock"),
        ),
    ),
    "Wikipedia": ToolForm(
        "Wikipedia",
        (
            _results("How many articles there are at most."),
            suggestion("language", "Language", "Which Wikipedia is searched.", wikipedia.LANGUAGES, default="en"),
        ),
    ),
    "YahooFinance": ToolForm(
        "Yahoo Finance",
        (
            switch("info", "Key figures", "Whether key figures are reported.", default=True),
            switch("history", "Prices", "Whether past prices are reported.", default=False),
            switch("count", "Shares", "RAGFlow stores it; runs do not read it.", default=False),
            switch("financials", "Financials", "Whether the financial statements are reported.", default=False),
            switch("income_stmt", "Income", "Whether the income statement is reported.", default=False),
            switch("balance_sheet", "Balance sheet", "Whether the balance sheet is reported.", default=False),
            switch("cash_flow_statement", "Cash flow", "Whether the cash flow is reported.", default=False),
            switch("news", "News", "Whether news are reported.", default=True),
        ),
    ),
}  # fmt: skip
