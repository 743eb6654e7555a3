"""Reports: one page without a network, for everybody, in which every text is escaped."""

import datetime as dt
import html
import math
import re
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._publish.tables import Cell, Column, _answer
from dp_polars._release.request import with_ends
from tests.helpers.needs import is_here, need
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


class Tables(Reader):
    """Collects the tables of a page: of each its caption, its headers, and its rows of headers and cells."""

    def __init__(self):
        super().__init__()
        self.tables, self.cell = [], None

    def handle_starttag(self, tag, attrs):
        super().handle_starttag(tag, attrs)
        if tag == "table":
            self.tables.append({"caption": "", "headers": [], "rows": []})
        elif tag in ("caption", "th", "td"):
            self.cell = []
        elif tag == "tr" and "tbody" in self.open:
            self.tables[-1]["rows"].append(([], [], []))
        elif tag in ("br", "li") and self.cell is not None:
            self.cell.append("\n")
        if tag == "td":
            self.tables[-1]["rows"][-1][2].append(dict(attrs).get("class"))

    def handle_endtag(self, tag):
        super().handle_endtag(tag)
        if tag not in ("caption", "th", "td"):
            return
        text, table = "".join(self.cell), self.tables[-1]
        self.cell = None
        if tag == "caption":
            table["caption"] = text
        elif "thead" in self.open:
            table["headers"].append(text)
        else:
            table["rows"][-1][tag == "td"].append(text)

    def handle_data(self, data):
        super().handle_data(data)
        if self.cell is not None:
            self.cell.append(data)


def tables_in(path):
    """The tables above the statement."""
    reader = Tables()
    reader.feed(path.read_text(encoding="utf-8").partition('<section class="dp-statement">')[0])
    return reader.tables


NUMBER = r"[-\d,.]+"


def numbers(text):
    """A number, and its ends if it has some, and with how many decimals they are shown."""
    value, low, high = re.fullmatch(rf"({NUMBER})(?: \(({NUMBER}) to ({NUMBER})\))?", text).groups()
    return tuple(one and Decimal(one.replace(",", "")) for one in (value, low, high))


def is_shown(text, row, name, off=None):
    """Whether a cell, or what is said of all of them, shows an answer rounded, and its ends rounded outwards."""
    value, low, high = numbers(text)
    unit = Decimal(1).scaleb(value.as_tuple().exponent)
    ends = [Decimal(str(row[f"{name}{end}"])) for end in ("_low", "_high")]
    if off is not None:
        assert low is high is None
        low, high = Decimal(str(row[name])) - off, Decimal(str(row[name])) + off
        # Ends of whole numbers are rounded outwards, so one number may be off by 1 less than another.
        assert 0 <= ends[0] - low <= 1
        assert 0 <= high - ends[1] <= 1
        low, high = ends
    exact = Decimal(str(row[name]))
    return abs(value - exact) <= unit / 2 and 0 <= ends[0] - low < unit and 0 <= high - ends[1] < unit


def off_in(caption, name):
    said = re.search(rf"(?:{name}: e|E)ach number ± ({NUMBER})\.", caption)
    return said and Decimal(said[1].replace(",", ""))


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
    assert reader.tags.count("svg") == 2 * drawn  # one for phones
    # No network: no attribute is a URL but the names of SVG's own words.
    urls = [(name, value) for name, value in reader.attributes if re.search("//|url\\(", value or "")]
    assert all(name.startswith("xmlns") for name, _ in urls), urls
    texts = " ".join(reader.texts)
    first = released.row(0, named=True)
    people = f"({first['people_low']} to {first['people_high']})"
    listed = zip(first["counts"], first["counts_low"], first["counts_high"], strict=True)
    counts = " ".join(
        f"{one['value']}: {one['count']}  ({low['count']} to {high['count']})" for one, low, high in listed
    )
    for said in (
        *(NASTY[0], "30", "ahead by", counts, "noise", "Privacy statement"),
        *("<i>who</i>", "at least 75 of 100", "What counts as one person: all rows with one value of 'patient'."),
    ):
        assert said in texts, said
    assert people in texts or "people: each number ±" in texts  # where all ends are as far away
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
    path = dpp.report(released, query, tmp_path / "page.html", at_delta=Decimal(delta), name="People")
    ((_, (text,), _),) = tables_in(path)[0]["rows"]
    assert text == f"{number:,} ({low:,.0f} to {high:,.0f})"
    page = path.read_text(encoding="utf-8")
    assert query._stated({"name": "People"}, Decimal(delta), "published").to_html() in page
    assert query._stated({"name": "People"}, Decimal("1e-6"), "published").to_html() not in page
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
    sections = {one.partition("</h2>")[0].split("<h2>")[-1]: one for one in page.split('<section id="')}
    visits, most = sections["visits"], "Each person counts at most as much as 1 group"
    assert f"<li>people, stay: {most}. A person with more counts in part.</li>" in visits
    assert f"<li>rows: {most}, 3 rows in each group. A person with more counts in part.</li>" in visits
    assert "<li>first: Each person counts in at most 1 group. Rows beyond that are dropped at random.</li>" in visits
    assert "<li>stay: A person's total in a group is clipped to 0 … 9: what is beyond" in html.unescape(visits)
    assert (
        "<li>About 90 rows do not count because of these limits (90 to 90; see cut).</li>" in visits
    )  # one of four rows of each
    assert visits.index("</table>") < visits.index("Each person counts") < visits.index("About 90 rows")
    assert "About" not in sections["other"]
    assert "of a person" not in sections["cut"].partition("How to read")[0]


def test_a_limit_that_was_found_says_how_many_people_have_more(tmp_path):
    rows = pl.DataFrame({"p": [n // 3 for n in range(9000)], "x": [n % 40 for n in range(9000)]})
    query = rows.dp.protect("p").agg(rows=dpp.len(), total=dpp.sum("x", step=1)).scaled_to(epsilon=5)
    released = query.release()
    page = dpp.report(released, query, tmp_path / "page.html", labels={"rows": "Visits"}).read_text(encoding="utf-8")
    assert len(query.found) > 1
    for one in query.found:
        low, high = (max(one.people + end, 0) for end in (-one.bound, one.bound))
        has = {"lower": "have values below it", "upper": "have values above it"}.get(one.what, "have more")
        assert f"about {max(one.people, 0):,} people {has} ({low:,} to {high:,})" in page
    assert "Visits: the limit of" in page or "Visits, total: the limit of" in page
    top = rows.dp.protect("p").agg(pl.col("x").dp.mode()).scaled_to(epsilon=5, delta=1e-6)  # its candidates are found
    page = dpp.report(top.release(), top, tmp_path / "top.html").read_text(encoding="utf-8")
    assert "candidates was found privately" in page
    assert "No limit drops anything" not in page
    assert "found privately; about" not in dpp.report(
        *(
            rows.dp.protect("p", max_rows=3).agg(dpp.len(epsilon=1)).release(),
            rows.dp.protect("p", max_rows=3).agg(dpp.len(epsilon=1)),
        ),
        tmp_path / "given.html",
    ).read_text(encoding="utf-8")


def test_few_people_keys_and_no_rows(tmp_path):
    query = asked()
    page = dpp.report(query.release(min_people=40), query, tmp_path / "a.html").read_text(encoding="utf-8")
    assert '<td class="small">–</td>' in page or "<td class=small>–</td>" in page
    keys = ROWS.dp.protect("patient", max_groups=1).keys("ward", epsilon=10, delta=1e-3)
    for released in (keys.release(), keys.release().clear()):
        reader = read(dpp.report(released, keys, tmp_path / "b.html"))
        assert "svg" not in reader.tags
        assert [len(one["rows"]) for one in tables_in(tmp_path / "b.html")] == [released.height]


def test_selected_keys_have_their_numbers_of_people(tmp_path):
    rows = ROWS.with_columns(ward=pl.lit("one"), year=2025)
    keys = rows.dp.protect("patient", max_groups=1).keys("ward", "year", with_counts=True, rho=0.5, delta=1e-6)
    released = keys.release()
    count = released["count"].item() * 1000  # so that thousands are told apart
    path = dpp.report(released.with_columns(count=pl.lit(count)), keys, tmp_path / "page.html", labels={"count": "n"})
    (table,) = tables_in(path)
    assert table["headers"] == ["ward", "year", "n"]
    assert table["rows"] == [(["one", "2025"], [f"{count:,}"], [None])]
    assert "enough people have. Shown with 95 % from" in path.read_text(encoding="utf-8")


def test_words_that_are_too_long_may_be_broken_and_empty_ones_are_named(tmp_path):
    long = "<" + "ab" * 20
    query = dpp.protect(None).group_by({"ward": [long, "", "short word"]}).agg(dpp.len(epsilon=1).alias(long))
    path = dpp.report(query.release(pl.DataFrame({"ward": [long]})), query, tmp_path / "page.html")
    (table,) = tables_in(path)
    assert table["headers"] == ["ward", long]
    assert [names for names, _, _ in table["rows"]] == [[long], ["(empty)"], ["short word"]]
    page = path.read_text(encoding="utf-8")
    assert f"&lt;{long[1:16]}<wbr/>{long[16:32]}<wbr/>{long[32:]}</th>" in page
    assert "short word</th>" in page


def test_figures_of_cubes_and_lines_fit_a_page_and_say_what_is_left_out(tmp_path):
    need("altair")
    groups = [f"place {number}" for number in range(40)]
    empty = pl.DataFrame(schema={"patient": pl.Int64, "place": pl.String, "month": pl.Date})
    private = empty.dp.protect("patient", max_groups=1)
    query = private.group_by({"place": groups, "month": MONTHS}).agg(people=dpp.n_people(epsilon=1))
    page = dpp.report(query.release(), query, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The first 30 of 40 groups are shown." in page
    cube = private.cube({"place": groups, "month": MONTHS}, epsilon=1)
    page = dpp.report(cube.release(), cube, tmp_path / "cube.html").read_text(encoding="utf-8")
    assert "The first 18 of 40 groups are shown." in page
    drawn = "".join(re.findall("<svg.*?</svg>", page, re.DOTALL))
    assert f">{MONTHS[0]:%Y-%m}<" in drawn
    assert f">{MONTHS[0]}<" not in drawn
    heights = [int(one) for one in re.findall(r'<svg[^>]*class="broad"[^>]*height="(\d+)"', page)]
    assert heights
    assert max(heights) <= 1500


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


MONTHS = [dt.date(2024 + month // 12, month % 12 + 1, 1) for month in range(24)]
REGIONS = ["north", "south", "east"]


def stays(people=4000):
    rng = np.random.default_rng(4)
    return pl.DataFrame(
        {
            "patient": range(people),
            "region": rng.choice(REGIONS, people),
            "month": pl.Series(MONTHS).gather(rng.integers(0, 24, people)),
            "kind": rng.choice(["flu", "fall"], people),
            "days": rng.gamma(2, 3, people),
        }
    )


def released_stays(**keys):
    query = stays().dp.protect("patient", max_rows=1).group_by(keys).agg(
        people=dpp.n_people(epsilon=1), stay=dpp.mean("days", 0, 20, epsilon=1)
    )  # fmt: skip
    return query.release(intervals=True), query


def test_one_key_has_the_numbers_of_the_release_in_the_order_of_the_keys(tmp_path):
    released, query = released_stays(region=[*REGIONS, "nowhere"])
    for sort, rows in (("keys", released), ("largest", released.sort("people", descending=True))):
        (table,) = tables_in(dpp.report(released, query, tmp_path / "page.html", sort=sort))
        assert table["headers"] == ["region", "people", "stay"]
        assert [names for names, *_ in table["rows"]] == [[region] for region in rows["region"]]
        off = off_in(table["caption"], "people")
        for (_, cells, kinds), row in zip(table["rows"], rows.iter_rows(named=True), strict=True):
            assert is_shown(cells[0], row, "people", off)
            assert is_shown(cells[1], row, "stay")
            assert kinds == ["small" if row["people_low"] <= 0 else None] * 2
    assert (table["rows"][-1][0], {*table["rows"][-1][2]}) == (["nowhere"], {"small"})


@pytest.mark.parametrize("keys", [{"region": REGIONS, "kind": ["flu", "fall"]}, {"region": REGIONS, "month": MONTHS}])
def test_two_keys_have_a_crossed_table_of_each_output(keys, tmp_path):
    released, query = released_stays(**keys)
    found = tables_in(dpp.report(released, query, tmp_path / "page.html"))
    assert len(found) == 2
    first, second = keys
    if second == "month":  # a long table, not a wide one
        first, second = second, first
    texts = released.with_columns(pl.col(pl.Date).dt.to_string("%Y-%m"))
    texts = texts.rows_by_key([first, second], named=True, unique=True)
    for name, table in zip(("people", "stay"), found, strict=True):
        assert table["caption"].startswith(f"{name}: {first} and {second}")
        off = off_in(table["caption"], name)
        corner, *across = table["headers"]
        assert corner == f"{first} \\ {second}"
        cells = [(down, cells) for (down,), cells, _ in table["rows"]]
        shown = {(down, one): cell for down, of in cells for one, cell in zip(across, of, strict=True)}
        assert shown.keys() == texts.keys()
        assert all(is_shown(cell, texts[key], name, off) for key, cell in shown.items())


def test_more_columns_than_fit_and_three_keys_are_rows(tmp_path):
    many = [f"kind {number}" for number in range(25)]
    for keys in ({"region": many, "kind": many}, {"region": REGIONS, "kind": ["flu"], "month": MONTHS}):
        released, query = released_stays(**keys)
        (table,) = tables_in(dpp.report(released, query, tmp_path / "page.html"))
        assert len(table["rows"]) == released.height
        assert table["headers"] == [*keys, "people", "stay"]


def test_quantiles_have_a_column_each_and_top_k_is_ranked(tmp_path):
    kinds = ["flu", "fall"]
    query = stays().dp.protect("patient", max_rows=1).group_by({"region": REGIONS}).agg(
        stay=pl.col("days").dp.quantile([0.25, 0.5, 0.9], range(31), epsilon=9),
        top=pl.col("kind").dp.top_k(2, kinds, epsilon=9),
    )  # fmt: skip
    released = query.release(intervals=True)
    path = dpp.report(released, query, tmp_path / "page.html")
    (table,) = tables_in(path)
    assert table["headers"] == ["region", "stay, 25\u00a0%", "stay, median", "stay, 90\u00a0%", "top"]
    for (_, cells, _), row in zip(table["rows"], released.iter_rows(named=True), strict=True):
        assert [*map(int, cells[:3])] == row["stay"]
        assert cells[3].split("\n")[1:] == row["top"]
    off = math.ceil(query.explain()["error_95"][0])
    page = path.read_text("utf-8")
    assert f"no quantile of a group is off by more than {off} rows in rank" in page
    # The 0.9-quantile of n rows is off by as many as lie above it from n = 10 · off on.
    assert (
        f"In groups of fewer than {10 * off} rows the 90\u00a0% one may be the largest value that is allowed." in page
    )
    assert "no intervals in values, because they depend on how many rows of a group count" in page


@pytest.mark.parametrize(
    ("alphas", "said"),
    [
        ([0.2, 0.5], (5, "20\u00a0% one may be the smallest value that is allowed")),
        ([0.5], (2, "median one may be any value")),
        ([0.3, 0.75], (4, "75\u00a0% one may be the largest value that is allowed")),
    ],
)
def test_lists_of_quantiles_say_in_which_groups_they_say_nothing(tmp_path, alphas, said):
    query = stays().dp.protect("patient", max_rows=1).agg(
        stay=pl.col("days").dp.quantile(alphas, range(31), epsilon=3)
    )  # fmt: skip
    page = dpp.report(query.release(), query, tmp_path / "page.html").read_text("utf-8")
    off, (times, words) = math.ceil(query.explain()["error_95"].item()), said
    assert f"In groups of fewer than {times * off:,} rows the {words}." in page


def test_a_cubes_tables_are_crossed_and_their_margins_agree(tmp_path):
    dimensions = {"region": REGIONS, "kind": ["flu", "fall"]}
    private = stays().dp.protect("patient", max_groups=1)
    for asked_for in ({"epsilon": 1}, {"tables": [("region", "kind")], "rho": 0.1}):
        query = private.cube(dimensions, **asked_for)
        cube = query.release()
        table = tables_in(dpp.report(cube, query, tmp_path / "page.html"))[-1]
        *_, (total, sums, _) = table["rows"]
        assert (table["headers"][1:], total) == (["flu", "fall", "Total"], ["Total"])
        for kind, cell in zip(("flu", "fall"), sums, strict=False):
            (row,) = cube.counts(pl.col("kind") == kind, by="kind").filter(kind=kind).rows(named=True)
            assert is_shown(cell, row, "count")
        assert numbers(sums[-1])[0] == round(cube.count().value)
        if "epsilon" in asked_for:  # whole numbers
            for _, cells, _kinds in table["rows"]:
                *parts, whole = [numbers(cell)[0] for cell in cells]
                assert sum(parts) == whole


def test_texts_are_those_that_are_given(tmp_path):
    released, query = released_stays(region=REGIONS)
    path = dpp.report(
        *(released, query, tmp_path / "page.html"),
        titles="Stays", labels={"people": "People", "region": "Region", "north": "The <north>"}, units={"stay": "days"},
        notes="From the register.", description="All hospitals.",
    )  # fmt: skip
    (table,) = tables_in(path)
    assert table["headers"] == ["Region", "People", "stay (days)"]
    assert table["rows"][0][0] == ["The <north>"]
    page = path.read_text("utf-8")
    assert "<h1>Stays</h1>" in page
    assert page.index("All hospitals.") < page.index("From the register.") < page.index("<table")
    publication = dpp.publication(a=query, b=query)
    both = {"a": released, "b": released}
    page = dpp.report(both, publication, path, titles={"a": "First"}, notes={"b": "The second."}).read_text("utf-8")
    assert re.findall("<h2>(.*?)</h2>", page)[:2] == ["First", "b"]
    assert page.index("<h2>b</h2>") < page.index("The second.")
    refused(
        ValueError, "titles must be by the names of the queries", dpp.report, both, publication, path, titles={"c": "x"}
    )
    refused(ValueError, "sort must be one of", dpp.report, released, query, path, sort="size")
    refused(TypeError, "labels must be a dict of texts", dpp.report, released, query, path, labels="x")


def test_there_is_a_statement_only_with_a_name_and_the_page_says_how_to_add_one(tmp_path):
    released, query = released_stays(region=REGIONS)
    page = dpp.report(released, query, tmp_path / "page.html").read_text("utf-8")
    assert "TO BE STATED" not in page
    assert "dp-statement" not in page.partition("</style>")[2]
    assert "To add one, give <code>report</code> a <code>name=</code>" in page
    named = dpp.report(released, query, tmp_path / "page.html", name="Stays").read_text("utf-8")
    assert "<details><summary>Privacy statement</summary>" in named
    assert "To add one" not in named


def test_a_screen_reader_finds_headers_and_texts_for_figures(tmp_path):
    need("altair")
    released, query = released_stays(region=REGIONS, kind=["flu", "fall"])
    reader = read(dpp.report(released, query, tmp_path / "page.html", titles="Stays"))
    assert reader.tags.count("th") == reader.attributes.count(("scope", "row")) + reader.attributes.count(
        ("scope", "col")
    )
    assert reader.attributes.count(("role", "img")) == reader.tags.count("svg") == 2
    # Only one of them is shown, so a screen reader finds one.
    assert [value for name, value in reader.attributes if name == "class" and value in ("broad", "slim")] == [
        "broad",
        "slim",
    ]
    style = (tmp_path / "page.html").read_text("utf-8").partition("</style>")[0]
    assert ".slim { display: none !important; }" in style
    assert ("aria-label", "Figure: Stays. The table below has its numbers.") in reader.attributes
    assert ("lang", "en") in reader.attributes


def test_a_report_of_200_groups_by_24_months_is_small_and_has_all_numbers(tmp_path):
    groups = [f"place {number}" for number in range(200)]
    empty = pl.DataFrame(schema={"patient": pl.Int64, "place": pl.String, "month": pl.Date})
    query = empty.dp.protect("patient", max_groups=1).group_by({"place": groups, "month": MONTHS}).agg(
        people=dpp.n_people(epsilon=1)
    )  # fmt: skip
    released = query.release(intervals=True)
    path = dpp.report(released, query, tmp_path / "page.html")
    assert path.stat().st_size < 2_000_000
    (table,) = tables_in(path)
    found = [int(cell.replace(",", "")) for _, cells, _ in table["rows"] for cell in cells]
    assert found == released["people"].to_list()
    assert f"<details><summary>Table of 200 rows: {table['caption'].partition('.')[0]}" in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (5.123456, 5.0001, 5.9999, "5.12 (5.00 to 6.00)"),
        (0.5, 0.49951, 0.50049, "0.50000 (0.49951 to 0.50049)"),
        (-0.001, -3.2, 3.2, "0.0 (-3.2 to 3.2)"),
        (1234567, 1230000, 1240000, "1,234,567 (1,230,000 to 1,240,000)"),
        (12.0, None, None, "12.00"),
        (True, None, None, "True"),
    ],
)
def test_ends_of_intervals_are_rounded_outwards(value, low, high, shown):
    cells = [Cell(value, low, high), Cell(value, low, None if high is None else high + type(high)(1))]
    column = Column("x", cells, is_sum=True)
    assert re.sub("<.*?>", "", _answer(cells[0], column.decimals)) == shown
