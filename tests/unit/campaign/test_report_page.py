import base64
import os
import re
from html import unescape
from html.parser import HTMLParser

import msgspec
import pytest
from PIL import Image

from metalforge.campaign.report.drawing import png_bytes
from metalforge.campaign.report.figures import draw_all
from metalforge.campaign.report.html import Raw, table
from metalforge.campaign.report.page import page_of, write_report
from metalforge.campaign.report.result import Results
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.state import fold
from metalforge.core.errors import SpecError
from metalforge.lattice.campaign.report import LatticeReport
from metalforge.statistics import with_error
from reference.campaigns import ending, interrupted, opened, records_of, spec_of
from reference.landau_chain import VOLUME

NASTY = "<script>alert('x')</script> & \"more\""
EMPTY = {"meta", "img", "br"}


class Page(HTMLParser):
    """Tags that balance, addresses that a browser would fetch, and the text that it shows."""

    def __init__(self, path):
        super().__init__()
        self.open, self.tags, self.addresses, self.text = [], [], [], ""
        self.html = path.read_text()
        self.feed(self.html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def has(self, *words):
        plain = " ".join(self.text.split())
        return [word for word in words if word not in plain] == []


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    records = records_of(spec_of(name=NASTY, algorithm="hmc", flavors=4, trajectories=9999), rows=6000, head=True)
    records[0] = msgspec.structs.replace(
        records[0], command=("metalforge", "scan", "a file.toml", "--seed", "1"), host="a <host>", commit="c0ffee"
    )
    state = fold(ending(records))
    directory = tmp_path_factory.mktemp("report")
    return state, write_report(Results(state), directory)


def test_the_page_stands_alone(written):
    _, path = written
    page = Page(path)
    pictures = [address for address in page.addresses if address.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) >= 12
    for address in pictures:
        assert b"<svg" in base64.b64decode(address.split(",")[1])
    others = [address for address in page.addresses if address not in pictures]
    # A place in the page, the curves in the page, and one file beside it: nothing that a network could be asked for.
    assert [address.split(",")[0] for address in others] == ["#evidence", "data:text/csv;base64", "rows.csv"]
    assert 'id="evidence"' in page.html
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert "url(" not in page.html
    assert "http" not in re.sub(r'"data:[^"]*"', "", page.html).replace("http-equiv", "")


def test_the_page_lets_a_browser_run_and_load_nothing(written):
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', Page(written[1]).html).group(1)
    allowed = dict(entry.split(maxsplit=1) for entry in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    assert allowed["img-src"] == "data:"
    assert "script-src" not in allowed


def test_what_users_wrote_is_text(written):
    _, path = written
    page = Page(path)
    assert page.has(NASTY, "a first look <spread> evenly; hint: none")
    assert "<script" not in page.html
    assert "<spread" not in page.html


def test_the_numbers_are_those_of_the_result(written):
    state, path = written
    result, page = Results(state), Page(path)
    found = result.systems[0].transition
    assert page.has(
        with_error(found.result, found.error),
        with_error(found.height, found.height_error),
        "the budget in seconds was spent",
        "metalforge scan 'a file.toml' --seed 1",
        state.digest(),
        state.opened.spec_sha256,
        "quenched_length",
        "+0.61",
        "120 J",
        "modelled: akd1000-published",
        "1.25 s",
        "f64 against f80",
        "93%",
        "3.0e-16",
        "per joule that was measured on cpu:0; npu-emulated (modelled) is not in it",  # they are not added
        "a <host>",
        "c0ffee",
    )
    for chain in result.chains:
        assert page.has(chain.id, f"{chain.coordinate:.5f}", with_error(chain.chi.mean, chain.chi.error))
        assert page.has(f"{chain.values['accepted'].mean:.0%}", f"{chain.values['cg_iterations'].mean:.0f}")
    assert page.has("CG per solve", "iterations per solve")


def test_the_spec_in_the_page_can_be_run_again(written):
    state, path = written
    shown = re.search(r"<pre>(.*?)</pre>", Page(path).html, re.DOTALL).group(1)
    assert unescape(shown) == spec_text(state.spec)


def test_figures_are_png_files_of_a_size_to_print(written):
    _, path = written
    names = {figure.stem for figure in (path.parent / "figures").iterdir()}
    evidence = {"order-histogram", "loop-plane", "crossings", "autocorrelation", "overlap", "pulls"}
    assert names == {"transition", "plaquette", "histories", "hmc", "updates", "error", "decisions"} | evidence
    for figure in (path.parent / "figures").iterdir():
        with Image.open(figure) as image:
            assert image.width > 1000
            assert len(image.convert("L").getcolors()) > 20  # something is drawn


def test_an_old_report_stays_when_the_new_one_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("old")
    replace = os.replace

    def full(source, target, **options):
        if str(target).endswith(".html"):
            raise OSError(28, "No space left on device")
        replace(source, target, **options)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SpecError, match=r"report\.html.*written"):
        write_report(Results(fold([opened(spec_of())])), tmp_path)
    assert (tmp_path / "report.html").read_text() == "old"
    assert not list(tmp_path.glob(".*"))


def test_a_campaign_without_a_row_has_a_report(tmp_path):
    page = Page(write_report(Results(fold([opened(spec_of())])), tmp_path))
    assert page.has("is not located", "no chain was measured", "It has not finished")
    assert page.addresses == []
    assert not list(tmp_path.glob("*.csv"))


def test_a_campaign_that_located_nothing_and_was_interrupted(tmp_path):
    state = fold(interrupted(records_of(spec_of(volumes=((8, 8, 8, 4), (6, 6, 6, 4))), betas=(5.62,), rows=60)))
    page = Page(write_report(Results(state), tmp_path))
    assert page.has("is not located", Results(state).systems[0].reason, "It was interrupted (SIGTERM)")
    assert page.has("6\u00b3\u00d74 is not located")


def test_the_same_journal_gives_the_same_bytes():
    state = fold(records_of(spec_of(), betas=(5.68, 5.7), rows=40))
    pages, pictures = [], []
    for _ in range(2):
        shown = Results(state)
        first = draw_all(shown)[:1]
        pages.append(page_of(shown, first))
        pictures.append(png_bytes(first[0].figure))
    assert pages[0] == pages[1]
    assert pictures[0] == pictures[1]


def test_tables_escape_every_cell_but_raw_ones():
    made = table((">n", "a<b"), [(1, "<i>"), (2, Raw("<b>2</b>"))])
    assert made.count("&lt;i&gt;") == 1
    assert "<b>2</b>" in made
    assert '<th class="n">n</th><th>a&lt;b</th>' in made


def test_several_volumes_have_the_extrapolation_as_headline_beside_what_is_published():
    state = fold(records_of(spec_of(volumes=(VOLUME, (12, 12, 12, 4), (10, 10, 10, 4))), rows=6000))
    shown = Results(state)
    result, text = shown, LatticeReport().sections(shown, {}, "")[0]
    assert with_error(result.extrapolation.result, result.extrapolation.error) in text.split("</h1>")[0]
    assert "infinite volume" in text
    assert "5.69254(24)" in text


def test_a_lattice_that_is_small_against_its_n_t_has_a_warning():
    state = fold([opened(spec_of(volumes=((4, 4, 4, 4),)))])
    assert "finite-size effects" in LatticeReport().sections(Results(state), {}, "")[0]


def test_figures_and_tables_fit_a_telephone(written):
    html = Page(written[1]).html
    assert "width=device-width" in html
    # Whatever is wider than the screen scrolls in a box of its own.
    assert html.count('<div class="wide"><table') == html.count("<table")
    assert html.count('<div class="wide"><img') == html.count("<img") > 0
    narrow = [float(width) for width in re.findall(r'style="min-width: (\d+)px', html)]
    assert len(narrow) == html.count("<img")
    # 400 pixels less the margins of the page; the two with many panels may be wider.
    assert sum(width <= 368 for width in narrow) >= 8
    assert max(narrow) < 520


def test_dark_and_printed_pages_have_their_own_colours_and_print_opens_what_is_closed(written):
    html = Page(written[1]).html
    assert "@media (prefers-color-scheme: dark)" in html
    printed = html.split("@media print")[1].split("</style>")[0]
    assert "details:not([open])" in printed
    assert "::details-content" in printed


def test_the_page_defines_what_was_simulated(written):
    page = Page(written[1])
    assert page.has("S = beta sum_p (1 - Re tr U_p / 3)", "staggered", "trajectory of length tau = 1", "omelyan2")
    state = fold([opened(spec_of())])
    quenched = page_of(Results(state), [])
    assert "1 heat bath sweep (" in quenched
    assert "4 overrelaxation sweeps" in quenched


def test_the_replicas_of_a_result_are_drawn_once_for_page_figures_and_numbers(tmp_path, monkeypatch):
    """At the end of a scan: the page with its figures, and the numbers that are printed."""
    from metalforge.campaign.analysis import evidence

    located, runs = evidence.locate, []
    monkeypatch.setattr(evidence, "locate", lambda *args, **named: runs.append(1) or located(*args, **named))
    state = fold(ending(records_of(spec_of(), rows=400)))
    shown = Results(state)
    write_report(shown, tmp_path)
    assert shown.systems
    assert len(runs) == len(state.spec.theory.volumes)
