"""Examples that show numbers: what they claim holds."""

import re
import runpy

from tests.helpers.places import ROOT


def test_the_best_price_by_own_sensitivities(capsys):
    runpy.run_path(str(ROOT / "examples" / "best_price.py"), run_name="__main__")
    rows = re.findall(r"^ *([\d,]+) +(\d+) +([\d.]+)% +([\d.]+)%$", capsys.readouterr().out, re.MULTILINE)
    assert [row[0] for row in rows] == ["200", "500", "1,000", "4,000"]
    one, own = ([float(row[i]) for row in rows] for i in (2, 3))
    # Dear prices that nobody pays cost nothing.
    assert max(own) <= 0.11
    assert one == sorted(one)
    assert one[-1] >= 1.3
