"""Mutants of the page about one release: what it says, leaves out, and lets through."""
# fmt: off

from tests.mutation.mutant import of

_report = of("publish/test_report.py")

_PAGE = "publish/test_report.py::test_a_page_that_is_whole_and_escaped"

MUTANTS = [
    # --- What a reader's browser runs
    _report("_publish/report:_cell", "html.escape(_text(value))", "_text(value)", "a key is run as HTML", _PAGE),
    _report("_publish/report:_cell", "html.escape(_text(first))", "_text(first)", "a value of counts is run as HTML"),
    _report("_publish/report:_table", "html.escape(name)", "name", "the name of a column is run as HTML"),
    _report("_publish/report:report", 'html.escape(known.get("name", "Private answers"))', 'known.get("name", "Private answers")',
        "the title is run as HTML", _PAGE),
    _report("_publish/report:_page", "html.escape(facts['unit']['person'])", "facts['unit']['person']", "the name of the privacy unit is run as HTML"),
    _report("_publish/report:_figure", 'html.escape(note[0].upper() + note[1:])', "note[0].upper() + note[1:]",
        "a note of the figure is run as HTML"),
    _report("_publish/report:_words", "html.escape(ask.name)", "ask.name", "the name of an interval is run as HTML"),
    # --- What it says
    _report("_publish/report:_section", "ask.name not in released.columns and not _are_keys(query)", "False",
        "another query's release is shown as this one's",
        "publish/test_report.py::test_another_querys_release_is_refused_without_a_figure_too"),
    _report("_publish/report:_page", "released if _are_keys(query) else with_ends(released, query.asks)", "released",
        "the ranges are left out", "publish/test_report.py::test_ranges_and_delta_are_those_of_the_query"),
    _report("_publish/report:_page", "statement.to_html()", '""', "the privacy statement is left out", _PAGE),
    _report("_publish/report:report", "query.stated(known, at_delta, \"published\")", "query.stated(known, Fraction(1, 10**6), \"published\")", "another delta is stated than was asked for"),
    _report("_publish/report:_cell", "html.escape(_text(low))", "html.escape(_text(high))", "a range begins at its end"),
    _report("_publish/report:_cell", "[*end.values()][1]", "[*end.values()][0]",
        "the range of a count is of values, not of counts"),
    _report("_publish/report:_cut", "request.clips(ask) is not None", "False", "totals that are cut off are not told of",
        "publish/test_report.py::test_each_table_says_which_bounds_cut_and_how_much"),
    _report("_publish/report:_how_much", 'asked.bounded.keys is not getattr(query.request, "keys", None)', "False",
        "what was cut of one table is said of another",
        "publish/test_report.py::test_each_table_says_which_bounds_cut_and_how_much"),
    _report("_publish/report:_words", "query.request.drops()", "False", "rows that are dropped are not told of",
        "publish/test_report.py::test_rows_that_are_dropped_are_told"),
    _report("_publish/report:_words", "any(ask.query.claim.lead for ask in asks)", "False",
        "nobody says what a lead is"),
    _report("_publish/report:_words", "show(100 * ask.query.probability)", '"99"', "an interval is surer than it is"),
    _report("_publish/report:_text", '"–"', '"0"', "an answer that is not shown is zero",
        "publish/test_report.py::test_few_people_keys_and_no_rows"),
    _report("_publish/report:_table", "shown.head(_MOST)", "shown", "a page of a million rows is written",
        "publish/test_report.py::test_long_releases_are_cut_and_say_so"),
    _report("_publish/report:_table", "shown.height > _MOST", "False", "rows are left out without a word",
        "publish/test_report.py::test_long_releases_are_cut_and_say_so"),
]
