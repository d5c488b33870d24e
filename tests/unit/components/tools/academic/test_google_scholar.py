"""GoogleScholar, with recorded pages."""

from typing import Any

import pytest

from components.tools.academic.google_scholar import GOOGLE_SCHOLAR
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import error_of, outputs_of, refusing, reply, unreachable, vendor


def article(title: str = "Small Widgets", abstract: str = "Small widgets.", link: str = "https://x.test/w") -> str:
    name = f'<a href="{link}">{title}</a>' if link else f"<span>[CITATION]</span> {title}"
    return (
        f'<div class="gs_r gs_or gs_scl"><div class="gs_ri"><h3 class="gs_rt"><span>[PDF]</span> {name}</h3>'
        '<div class="gs_a">Ann Lee, Bo Li… - Journal of Widgets, 2024 - x.test</div>'
        f'<div class="gs_rs">{abstract}</div><div class="gs_fl"><a>Cited by 12</a></div></div></div>'
    )


def page(*articles: str) -> Any:
    return reply(f"<html><body>{''.join(articles)}</body></html>")


def test_articles_become_citations_and_json():
    outputs = outputs_of(GOOGLE_SCHOLAR, {"query": "widgets"}, vendor(page(article())))

    assert outputs["formalized_content"] == (
        "\nID: 141\n├── Title: Small Widgets\n├── URL: https://x.test/w\n"
        "└── Content:\n\n author: Ann Lee,Bo Li\n Abstract: Small widgets."
    )
    assert outputs["json"] == [
        {
            "bib": {
                "title": "Small Widgets",
                "author": ["Ann Lee", "Bo Li"],
                "abstract": "Small widgets.",
                "pub_year": "2024",
                "venue": "Journal of Widgets",
            },
            "pub_url": "https://x.test/w",
            "num_citations": 12,
        }
    ]


def test_article_without_an_abstract_and_a_url_is_returned():
    outputs = outputs_of(GOOGLE_SCHOLAR, {"query": "w"}, vendor(page(article(abstract="", link=""))))

    assert "ID: 258" in outputs["formalized_content"]
    assert outputs["formalized_content"].endswith("\n author: Ann Lee,Bo Li\n Abstract: no abstract")
    assert (outputs["json"][0]["bib"]["title"], outputs["json"][0]["pub_url"]) == ("Small Widgets", "")


def test_pages_are_read_until_there_are_enough_articles():
    http = vendor(page(*[article(f"t{n}") for n in range(10)]), page(*[article(f"u{n}") for n in range(10)]))

    outputs = outputs_of(GOOGLE_SCHOLAR, {"query": "w", "top_n": 12}, http)

    starts: Any = [call.params["start"] for call in http.calls if isinstance(call.params, dict)]
    assert (len(outputs["json"]), starts) == (12, [0, 10])


def test_request_contains_the_parameters_of_the_node():
    http = vendor(page())
    stored = {"query": "w", "sort_by": "date", "year_low": "2020", "year_high": 2024, "patents": False}

    outputs_of(GOOGLE_SCHOLAR, stored, http)

    assert http.calls[0].params == {
        "hl": "en",
        "q": "w",
        "as_vis": 0,
        "as_sdt": "1,33",
        "as_ylo": 2020,
        "as_yhi": 2024,
        "scisbd": 1,
        "start": 0,
    }


@pytest.mark.parametrize("blocked", [reply("", 429), reply('<html><form id="gs_captcha_f"></form></html>')])
def test_captcha_is_an_error_and_not_retried(blocked: Any):
    http = vendor(blocked)

    assert error_of(GOOGLE_SCHOLAR, {"query": "w", "max_retries": 3}, http) == (
        "Google Scholar refuses programs for now."
    )
    assert len(http.calls) == 1


@pytest.mark.parametrize("body", ["", "<html></html>", "\x00\xff", '<div class="gs_ri"></div>'])
def test_empty_result_is_not_an_error(body: str):
    outputs = outputs_of(GOOGLE_SCHOLAR, {"query": "w"}, vendor(reply(body)))

    assert outputs == {"formalized_content": "", "json": []}


def test_transport_failure_is_an_error():
    assert error_of(GOOGLE_SCHOLAR, {"query": "w"}, vendor(reply("oops", 500))) == "HTTP 500: oops"
    assert "non-public" in error_of(GOOGLE_SCHOLAR, {"query": "w"}, FakeHttp(refusing))
    assert "12 s" in error_of(GOOGLE_SCHOLAR, {"query": "w"}, FakeHttp(unreachable))


def test_empty_query_sends_no_request():
    assert outputs_of(GOOGLE_SCHOLAR, {"query": ""}, FakeHttp(no_network)) == {"formalized_content": "", "json": []}
