"""Reports: one page without a network, for everybody, in which every text is escaped."""

import html
import re
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._release.request import with_ends
from tests.helpers.needs import is_here
from tests.helpers.refusals import refused

NASTY = ["<script>alert(1)</script>", "</svg><img src=x onerror=y>", "a & b"]
ROWS = pl.DataFrame({"patient": range(90), "ward": NASTY * 30, "days": [1, 5, 3] * 30})


class Reader(HTMLParser):
    """Collects the tags, their attributes and the texts of a page, and sees to it that all are closed."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def asked(**bounds):
    private = ROWS.dp.protect("patient", **{"max_groups": 1, "max_rows_per_group": 1, **bounds})
    return private.group_by({"ward": NASTY}).agg(
        people=dpp.n_people(epsilon=10_000),
        stay=pl.col("days").dp.median(range(31), confidence=0.75, epsilon=10_000),
        top=pl.col("ward").dp.mode(NASTY, gap=True, epsilon=10_000).alias("<b>"),
        counts=pl.col("days").dp.value_counts([1, 3], epsilon=10_000),
        mean=pl.col("days").dp.mean(0, 9, epsilon=10_000),
    )


def test_a_page_that_is_whole_and_escaped(tmp_path):
    query = asked()
    released = query.release(intervals=True)
    path = dpp.report(released, query, tmp_path / "page.html", name=NASTY[0], actors="<i>who</i>")
    reader = read(path)
    assert path == tmp_path / "page.html"
    assert not {"script", "img", "i", "b", "link", "iframe"} & {*reader.tags}
    drawn = is_here("altair") and is_here("vl_convert")
    assert reader.tags.count("figure") == drawn
    assert reader.tags.count("svg") == drawn
    # No network: no attribute is a URL but the names of SVG's own words.
    urls = [(name, value) for name, value in reader.attributes if re.search("//|url\\(", value or "")]
    assert all(name.startswith("xmlns") for name, _ in urls), urls
    texts = " ".join(reader.texts)
    for said in (
        *(NASTY[0], "30", "(29 to 31)", "ahead by", "1: 30  (29 to 31) 3: 0  (-1 to 1)", "noise", "Privacy statement"),
        *("<i>who</i>", "at least 75 of 100", "What counts as one person: all rows with one value of 'patient'."),
    ):
        assert said in texts, said
    assert "@media print" in texts


def test_no_name_and_no_value_is_run_as_html(tmp_path):
    """Every text that a caller can choose, or that keys and candidates hold, is an `i` of its own."""
    rows = ROWS.select(pl.col("patient").alias("<i>unit"), pl.lit("<i>key").alias("<i>of"), days="days")
    private = rows.dp.protect("<i>unit", max_groups=1, max_rows_per_group=1)
    query = private.group_by({"<i>of": ["<i>key", "<i>other"]}).agg(
        pl.col("days").dp.median(range(31), confidence=0.75, epsilon=10_000).alias("<i>interval"),
        pl.col("<i>of").dp.value_counts(["<i>key", "<i>candidate"], epsilon=10_000).alias("<i>counts"),
        pl.col("<i>of").dp.mode(["<i>key"], gap=True, epsilon=10_000).alias("<i>mode"),
        dpp.len(epsilon=10_000).alias("<i>len"),
    )
    reader = read(dpp.report(query.release(intervals=True), query, tmp_path / "page.html", name="<i>title"))
    assert "i" not in reader.tags
    texts = " ".join(reader.texts)
    for word in ("unit", "of", "key", "other", "candidate", "interval", "counts", "mode", "len", "title"):
        assert f"<i>{word}" in texts


@pytest.mark.parametrize("delta", ["1e-7", "1e-9"])
def test_ranges_and_delta_are_those_of_the_query(tmp_path, delta):
    """Also where a release has no ranges: those of counts follow from the noise, low end first."""
    query = ROWS.dp.protect("patient", max_groups=1).agg(people=dpp.n_people(rho=Fraction(1, 10_000)))
    released = query.release()
    number, low, high = with_ends(released, query._asks).row(0)
    assert low < number < high
    path = dpp.report(released, query, tmp_path / "page.html", at_delta=Decimal(delta))
    assert f"{number:,} ({low:,.4g} to {high:,.4g})" in " ".join(" ".join(read(path).texts).split())
    page = path.read_text(encoding="utf-8")
    assert query._stated({}, Decimal(delta), "published").to_html() in page
    assert query._stated({}, Decimal("1e-6"), "published").to_html() not in page
    assert "lanned" not in page


def test_a_gap_is_explained_and_rows_that_are_dropped_are_told(tmp_path):
    for gap in (False, True):
        query = ROWS.dp.protect("patient", max_rows=1).agg(dpp.mode("days", [1, 3, 5], gap=gap, epsilon=1))
        page = dpp.report(query.release(), query, tmp_path / "page.html").read_text(encoding="utf-8")
        assert ("how far the answer was in front of the next best one" in page) == gap
    for bounds, told in (({}, True), ({"max_groups": 3, "max_rows_per_group": None}, False)):
        private = ROWS.dp.protect("patient", **{"max_groups": 1, **bounds})
        query = private.group_by({"ward": NASTY}).agg(people=dpp.n_people(epsilon=1))
        page = dpp.report(query.release(), query, tmp_path / "page.html").read_text(encoding="utf-8")
        assert ("Some data count less" in page) == told


def test_each_table_says_which_bounds_cut_and_how_much(tmp_path):
    private = pl.concat([ROWS] * 4).dp.protect("patient", max_groups=1, max_rows_per_group=3)
    outputs = {
        "people": dpp.n_people(epsilon=10_000),
        "rows": dpp.len(epsilon=10_000),
        "stay": pl.col("days").dp.sum(0, 9, per_person=(0, 9), epsilon=10_000),
        "first": pl.col("days").dp.mode([1, 3], epsilon=10_000),
    }
    query = private.group_by({"ward": NASTY}).agg(**outputs)
    other = private.group_by({"ward": NASTY[:2]}).agg(**outputs)  # the same rows in other groups
    publication = dpp.publication(visits=query, other=other, cut=query.n_rows_dropped(5, epsilon=10_000))
    released = publication.release(intervals=True)
    page = dpp.report(released, publication, tmp_path / "page.html").read_text(encoding="utf-8")
    sections = {one.partition("</h2>")[0]: one for one in page.split("<section><h2>")}
    visits, most = sections["visits"], "Each person counts at most as much as 1 group"
    assert f"<p>people, stay: {most}. A person with more counts in part.</p>" in visits
    assert f"<p>rows: {most}, 3 rows in each group. A person with more counts in part.</p>" in visits
    assert "<p>first: Each person counts in at most 1 group. Rows beyond that are dropped at random.</p>" in visits
    assert "<p>stay: A person's total in a group is clipped to 0 … 9: what is beyond" in html.unescape(visits)
    assert (
        "<p>About 90 rows do not count because of these limits (90 to 90; see cut).</p>" in visits
    )  # one of four rows of each
    assert visits.index("</table>") < visits.index("Each person counts") < visits.index("About 90 rows")
    assert "About" not in sections["other"]
    assert "of a person" not in sections["cut"].partition("What the numbers")[0]


def test_few_people_keys_and_no_rows(tmp_path):
    query = asked()
    page = dpp.report(query.release(min_people=40), query, tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<td>–</td>" in page
    keys = ROWS.dp.protect("patient", max_groups=1).keys("ward", epsilon=10, delta=1e-3)
    for released in (keys.release(), keys.release().clear()):
        reader = read(dpp.report(released, keys, tmp_path / "b.html"))
        assert "this is a list of groups" in " ".join(reader.texts)


def test_figures_hold_no_characters_that_an_svg_lacks(tmp_path):
    """The drawing would end the process."""
    odd = ["a\x02b", "a\ufffeb", "a\u2028b", "a\x0b\x1fb"]
    private = ROWS.with_columns(ward=pl.lit(odd[0])).dp.protect("patient", max_groups=1, max_rows_per_group=1)
    top = {one + "_top": pl.col("ward").dp.mode(odd, epsilon=10_000) for one in odd}
    query = private.group_by({"ward": odd}).agg(**{odd[1]: dpp.n_people(epsilon=1), odd[3]: dpp.len(epsilon=1)}, **top)
    page = dpp.report(query.release(), query, tmp_path / "page.html").read_text(encoding="utf-8")
    drawn = "".join(re.findall("<svg.*?</svg>", page, re.DOTALL))
    assert (">a\ufffdb<" in drawn) == (is_here("altair") and is_here("vl_convert"))
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", drawn)


def test_without_the_extra_there_is_no_figure_and_another_querys_release_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr("dp_polars._publish.report.find_spec", lambda _: None)
    query = asked()
    released, path = query.release(), tmp_path / "page.html"
    reader = read(dpp.report(released, query, path))
    assert "svg" not in reader.tags
    assert "is not installed" in " ".join(reader.texts)
    refused(ValueError, r"it lacks \['mean'\]", dpp.report, released.drop("mean"), query, path)


def test_long_releases_are_cut_and_say_so(tmp_path):
    query = dpp.protect(None).group_by({"ward": range(1200)}).agg(n=dpp.len(epsilon=1))
    released = query.release(pl.DataFrame({"ward": [1]}))
    page = dpp.report(released, query, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The first 1,000 of 1,200 rows are shown." in page
    assert page.count("<tr>") < 1100


def test_what_is_no_release_is_refused(tmp_path):
    query = asked()
    released = query.release()
    for arguments, error, said in (
        ((released.drop("mean"), query), ValueError, "it lacks"),
        ((released, released), TypeError, "query must be a PrivateQuery"),
        ((3, query), TypeError, "released must be what"),
    ):
        refused(error, said, dpp.report, *arguments, tmp_path / "page.html")
    refused(TypeError, "'nmae' must be left out", dpp.report, released, query, tmp_path / "page.html", nmae="x")
    assert not list(tmp_path.iterdir())
