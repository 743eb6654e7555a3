"""Writes the tables of `docs/proofs/machine-checked.md` anew: `python -m tests.helpers.machine_checked`."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "proofs" / "machine-checked.md"


def table(name):
    """Return a table of the page, by its name."""
    return re.search(rf"(?s)<!-- {name} -->\n\n(.*?)\n\n<!-- end -->", PAGE.read_text(encoding="utf-8")).group(1)


def main():
    from tests.mechanisms import test_lemmas
    from tests.statistics import test_ranges_for_all

    page = PAGE.read_text(encoding="utf-8")
    for name, made in (("ranges", test_ranges_for_all.table()), ("lemmas", test_lemmas.table())):
        page = page.replace(table(name), made)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
