"""The planner in a real browser: from a schema to code that runs, at 1,280 and 400 px.

    python tests/browser/check_planner.py [--pictures FOLDER]

The planner's file has rows that can't be read. Exits non-zero where a message, a cost, a figure or the code is not what
it should be, where the keyboard does not reach the fields in their order, and where the page is too wide, asks the
network or complains.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
from chrome import DEEP, chrome, free_port, picture, requests, resize, with_deep
from selenium import webdriver
from selenium.common.exceptions import JavascriptException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

# A field by the beginning of its name.
FIELD = with_deep("""
const field = (name) => deep(document, '.dp-field')
  .find((one) => one.querySelector('.dp-name').textContent.startsWith(name));
""")
INSIDE = FIELD + "const one = field(arguments[0]); return one && deep(one, arguments[1])[0];"
WRONG = FIELD + "const one = field(arguments[0])?.querySelector('.dp-wrong'); return one ? one.textContent : '';"
TEXT = DEEP + "return deep(document, arguments[0]).map((one) => one.textContent).join(' ');"
NUMBER = DEEP + "return deep(document, arguments[0]).length;"
OPTION = DEEP + "return deep(document, '[role=option]').find((one) => one.textContent.trim() === arguments[0]);"
# What stands out of the window, but for what scrolls in its own box.
WIDE = with_deep("""
const [root, width] = [document.documentElement, document.documentElement.clientWidth];
const inside = (one) => one.closest('.dp-scroll, pre, figure, .dp-statement');
return [
  ...(root.scrollWidth > width ? [`the page is ${root.scrollWidth} px wide`] : []),
  ...deep(document, '.dp-planner *').filter((one) => !inside(one) && one.getBoundingClientRect().right > width + 1)
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`),
];
""")
# What every slider shows at its side, by the name of its field.
SHOWN = with_deep("""
const text = (root) => root.nodeType === 3 ? root.data : root.nodeName === 'STYLE' ? ''
  : [...(root.shadowRoot ? [root.shadowRoot] : []), ...root.childNodes].map(text).join(' ');
return deep(document, '.dp-field').filter((one) => deep(one, '[role=slider]').length).map((one) =>
  [one.querySelector('.dp-name').textContent, text(deep(one, 'marimo-slider')[0]).trim().split(/\\s+/).pop()]);
""")
# The fields in the order in which they are read, but for those that are hidden; and the field that has the focus, with
# whether that can be seen.
NAMES = with_deep("""
return deep(document, '.dp-field').filter((one) => one.checkVisibility())
  .map((one) => one.querySelector('.dp-name').textContent);
""")
FOCUSED = with_deep("""
const one = deep(document, '.dp-field:focus-within')[0];
return one ? [one.querySelector('.dp-name').textContent, getComputedStyle(one).outlineStyle] : null;
""")
SWITCH = with_deep("""
const switches = deep(document, 'marimo-switch').filter((one) => (one.dataset.label || '').includes(arguments[0]));
deep(switches[0].shadowRoot, '[role=switch]')[0].click();
""")
BAR = DEEP + "const one = deep(document, '.dp-bar')[0].getBoundingClientRect(); return [one.height, one.bottom];"
HEIGHT = 1000
WARDS = ["north", "south", "o'east"]


class Planner:
    """The page, by the names of its fields."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def wait(self, what: str, condition: Callable[[], object], seconds: float = 60) -> object:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(WebDriverException, JavascriptException):
                if found := condition():
                    return found
            time.sleep(0.05)
        msg = f"{what} did not come within {seconds:.0f} s; messages: {self.text('.dp-wrong')!r}"
        raise TimeoutError(msg)

    def text(self, selector: str) -> str:
        return self.driver.execute_script(TEXT, selector)

    def errors(self) -> str:
        return self.text(".dp-seen td")

    def inside(self, name: str, selector: str) -> object:
        element = self.wait(f"the field {name!r}", lambda: self.driver.execute_script(INSIDE, name, selector))
        # By the keyboard: a field that is drawn anew may move away from under a click.
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", element)
        return element

    def type(self, name: str, text: str) -> None:
        self.inside(name, "input, textarea")
        keys = ActionChains(self.driver)
        keys.key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys(text, Keys.TAB).perform()

    def choose(self, name: str, *options: str) -> None:
        self.inside(name, "button")
        ActionChains(self.driver).send_keys(Keys.ENTER).perform()
        for option in options:
            self.wait(f"the option {option!r}", lambda text=option: self.driver.execute_script(OPTION, text)).click()
            time.sleep(0.3)
        ActionChains(self.driver).send_keys(Keys.ESCAPE).perform()

    def move(self, name: str, key: str, times: int = 1) -> list[float]:
        """Move a slider by its keys, and return how long it took, each time, until the page told other errors."""
        self.inside(name, "[role=slider]")
        took = []
        for _ in range(times):
            before, begin = self.errors(), time.monotonic()
            ActionChains(self.driver).send_keys(key).perform()
            self.wait(f"other errors by {name!r}", lambda before=before: self.errors() not in ("", before))
            took.append(time.monotonic() - begin)
        return took

    def says(self, name: str, words: str) -> None:
        self.wait(f"{words!r} at the field {name!r}", lambda: words in self.driver.execute_script(WRONG, name))

    def code(self) -> str:
        return self.text(".dp-code code")


def check(planner: Planner, folder: Path, intact: bytes, width: int, pictures: Path | None) -> list[str]:
    """Go the whole way at a width, and return what is wrong."""
    driver, path = planner.driver, folder / "visits.parquet"
    resize(driver, width, HEIGHT)
    wrong: list[str] = []
    # The first code is there before anything is picked: the number of people, by the likely column.
    planner.wait("the first code", lambda: "people=dpp.n_people()" in planner.code(), 120)
    planner.wait("the guarantee", lambda: planner.text(".dp-cost") == "ε = 1, δ = 1e-6")
    planner.move("ε", Keys.ARROW_LEFT)
    planner.wait("a smaller guarantee", lambda: ".scaled_to(epsilon=0.7, delta=1e-6)" in planner.code())
    planner.move("ε", Keys.ARROW_RIGHT, 2)
    Select(planner.inside("δ", "select")).select_by_visible_text("1e-7")
    planner.wait("a smaller δ", lambda: ".scaled_to(epsilon=1.5, delta=1e-7)" in planner.code())
    planner.choose("Columns (none", "ward")
    planner.says("Public values of ward", "keys of column 'ward' must not be empty")
    planner.type("Public values of ward", "\n".join([*WARDS, "null"]))
    planner.says("Public values of ward", "keys of column 'ward' must not contain null")
    planner.type("Public values of ward", "\n".join(WARDS))
    planner.wait("the code with groups", lambda: "group_by" in planner.code())
    planner.choose("Statistics", "reason: most common value", "age: median", "days: mean")
    planner.says("Public values, or ends, of days", "lower must be a number")  # the last one: fields are drawn anew
    planner.says("Public values, or ends, of age", "candidates must not be empty")
    planner.type("Public values, or ends, of age", "young")
    planner.says("Public values, or ends, of age", "candidates of a quantile must be numbers or times, got String")
    planner.type("Public values, or ends, of age", "0..120")
    planner.type("Public values, or ends, of reason", "fall\nflu\ncold")
    planner.type("Public values, or ends, of days", "0..30 by 0.5")
    planner.wait("all outputs", lambda: all(name in planner.code() for name in ("age_med", "reason_m", "days_m")))
    if planner.driver.execute_script(NUMBER, ".dp-wrong"):
        wrong.append(f"a message is left: {planner.text('.dp-wrong')}")
    if "max_groups" in planner.code() or 'protect("patient", budget=budget, dataset=' not in planner.code():
        wrong.append("limits are not found privately at first")
    planner.driver.execute_script(SWITCH, "find the limits")
    planner.wait(
        "limits of one's own", lambda: all(f"max_{of}=2" in planner.code() for of in ("groups", "rows_per_group"))
    )
    took = planner.move("age_median", Keys.ARROW_RIGHT, 3)
    took += planner.move("days_mean", Keys.ARROW_RIGHT, 2)
    took += planner.move("Rows in each group", Keys.ARROW_RIGHT)
    print(f"{width} px: a slider takes {min(took):.2f} to {max(took):.2f} s until the page tells the errors")
    planner.wait("other people", lambda: "At your limits" in planner.text("figure"))
    before = planner.text("figure")
    planner.inside("People with many rows", "[role=slider]")
    ActionChains(driver).send_keys(*[Keys.ARROW_RIGHT] * 4).perform()
    planner.wait("another figure of what the limits drop", lambda: planner.text("figure") != before)
    figures = driver.execute_script(NUMBER, "figure svg")
    if figures != 3:
        wrong.append(f"{figures} figures instead of 3")
    stated = planner.text(".dp-statement")
    wrong += [f"the statement lacks {words!r}" for words in ("TO BE STATED", "ε = 1.5") if words not in stated]
    if "people" not in planner.errors() or planner.text(".dp-cost") != "ε = 1.5, δ = 1e-7":
        wrong.append(f"the table or the guarantee is not there: {planner.text('.dp-cost')}")
    wrong += mismatches(dict(driver.execute_script(SHOWN)), planner.code())
    wrong += driver.execute_script(WIDE)
    height, bottom = driver.execute_script(BAR)
    if (width < 900) != (height > 0 and bottom <= HEIGHT + 1):
        wrong.append(f"the bar with the guarantee is {height} px high and ends at {bottom} px")
    if pictures is not None:
        save(driver, pictures / f"planner-{width}.png", width)
    wrong += tabbed(planner)  # it scrolls
    code = planner.code()
    path.write_bytes(intact)  # now, for the first time, there are rows to read
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or not all(f"│ {ward}" in done.stdout for ward in WARDS):
        wrong.append(f"the code did not run:\n{code}\n{done.stdout}\n{done.stderr}")
    other_units(planner)
    return [f"{width} px: {what}" for what in wrong]


def other_units(planner: Planner) -> None:
    """Say how wrong answers may be, and then take every row for another person: the code follows."""
    driver = planner.driver
    Select(planner.inside("Engine", "select")).select_by_visible_text("DuckDB")
    planner.wait("code for DuckDB", lambda: "print(dpp.sql.release(query, rows, intervals=True))" in planner.code())
    Select(planner.inside("Engine", "select")).select_by_visible_text("Polars")
    planner.wait("code for Polars", lambda: "print(query.release(intervals=True))" in planner.code())
    # Groups of two columns, first all together, and then a table for each; the months of a date are a column.
    planner.choose("Columns (none", "day_month")
    planner.says("Public values of day_month", "keys of column 'day_month' must not be empty")
    planner.type("Public values of day_month", "2026-01..2026-06")
    planner.wait("groups of both", lambda: "day_month=pl.col(" in planner.code())
    driver.execute_script(SWITCH, "tables of people that agree")
    planner.wait("a cube", lambda: "once.cube(" in planner.code() and "count by ward" in planner.errors())
    driver.execute_script(SWITCH, "select the groups privately")
    planner.wait("selected groups", lambda: '.group_by("ward", "day_month")' in planner.code())
    planner.wait("how large they are", lambda: "Groups: Shown with 95 % from" in planner.text(".dp-seen"))
    driver.execute_script(SWITCH, "select the groups privately")
    planner.wait("listed groups", lambda: "once.cube(" in planner.code())
    driver.execute_script(SWITCH, "tables of people that agree")
    driver.execute_script(SWITCH, "a table for each")
    planner.wait("two tables", lambda: all(f'"by_{name}": ' in planner.code() for name in ("ward", "day_month")))
    driver.execute_script(SWITCH, "say how wrong")
    planner.wait("errors that cost too much", lambda: "There is no code yet" in planner.text(".dp-seen"))
    planner.inside("ε", "[role=slider]")
    ActionChains(driver).send_keys(Keys.END).perform()
    planner.wait("errors that fit", lambda: "people=dpp.n_people(within=50)" in planner.code())
    planner.wait("what they cost", lambda: "These errors cost epsilon=" in planner.text(".dp-seen"))
    Select(planner.inside("The column that tells", "select")).select_by_visible_text("every row is another person")
    planner.wait("no unit", lambda: "rows.dp.protect(None, budget=budget" in planner.code())
    assert "n_people" not in planner.code(), "there are no people to count"
    assert "reason_mode=dpp.mode(" in planner.code(), "the other statistics are lost"


def tabbed(planner: Planner) -> list[str]:
    """Go through all fields by the keyboard, and return where that leaves the order in which they are read."""
    driver = planner.driver
    driver.execute_script(DEEP + "const one = deep(document, 'summary')[0]; one.focus();")
    names, reached = driver.execute_script(NAMES), {}
    for _ in range(2 * len(names)):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        if focused := driver.execute_script(FOCUSED):
            reached[focused[0]] = focused[1]
    wrong = [] if [*reached] == names else [f"the keyboard reaches {[*reached]}, read are {names}"]
    return wrong + [f"the focus on {name} can't be seen" for name, outline in reached.items() if outline == "none"]


def mismatches(shown: dict[str, str], code: str) -> list[str]:
    """Return which sliders show another number than the one that counts."""
    wanted = {name: re.search(r"([0-9.,]+) part", name) for name in shown}
    numbers = {name: found[1].replace(",", "") for name, found in wanted.items() if found}
    numbers["Groups, at most (max_groups)"] = re.search(r"max_groups=(\d+)", code)[1]
    numbers["Rows in each group, at most (max_rows_per_group)"] = re.search(r"max_rows_per_group=(\d+)", code)[1]
    numbers |= {name: re.search(r"Budget\(epsilon=([\d.]+)", code)[1] for name in shown if name.startswith("ε")}
    if len(shown) != len(numbers) + 4 or len(numbers) != 7:
        return [f"there are other sliders than expected: {shown}"]
    return [f"{name} shows {shown[name]}" for name, number in numbers.items() if float(shown[name]) != float(number)]


def save(driver: webdriver.Chrome, path: Path, width: int) -> None:
    """Save the page: from its top, or where it is narrow, the sliders and the cost at the lower edge."""
    is_wide = width > 900
    resize(driver, width, 1180 if is_wide else 800)
    place, block = (".dp-title", "end") if is_wide else ("section:nth-of-type(6)", "start")
    driver.execute_script(DEEP + "deep(document, '[role=slider]').forEach((one) => one.blur());")
    driver.execute_script(DEEP + "deep(document, arguments[0])[0].scrollIntoView({block: arguments[1]})", place, block)
    time.sleep(1)
    path.write_bytes(picture(driver))


def write(path: Path) -> bytes:
    """Write a file of visits whose rows can't be read, and return the one that it was."""
    n = 6000
    pl.DataFrame(
        {
            "patient": [number // 3 for number in range(n)],
            "ward": [WARDS[number % 7 % 3] for number in range(n)],
            "reason": [["fall", "flu", "cold", "secret"][number % 11 % 4] for number in range(n)],
            "age": [number * number % 99 for number in range(n)],
            "days": [number % 41 / 2 for number in range(n)],
            "day": [date(2026, 1, 1) + timedelta(number % 180) for number in range(n)],
        }
    ).write_parquet(path)
    intact = path.read_bytes()
    begin = len(intact) - 8 - int.from_bytes(intact[-8:-4], "little")
    path.write_bytes(b"\xaa" * begin + intact[begin:])
    with contextlib.suppress(pl.exceptions.PolarsError, OSError):
        sys.exit(f"the rows can be read: {pl.read_parquet(path).height}")
    return intact


def address(server: subprocess.Popen[str]) -> str:
    """Return the address that the planner prints, with its token."""
    for line in server.stdout or ():
        if found := re.search(r"http://[^\s\x1b]+(?:\x1b\[[0-9;]*m|\S)*", line):
            return re.sub(r"\x1b\[[0-9;]*m", "", found[0])
    msg = "the planner printed no address"
    raise TimeoutError(msg)


def listens(port: int) -> int:
    """Return 0 if somebody listens at a port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port))


def strangers(port: int) -> list[str]:
    """Return which ways in are open to those who don't know the token, such as another page in the browser."""
    wrong = []
    for path in ("/", "/ws?session_id=s_strange", "/api/version", "/public/notebook.py"):
        key = base64.b64encode(b"0" * 16).decode()
        headers = (
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        )
        upgrade = "".join(f"{header}\r\n" for header in headers)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as asked:
            head = f"GET {path} HTTP/1.1\r\nHost: stranger.example\r\nOrigin: http://stranger.example\r\n"
            asked.sendall(f"{head}{upgrade if path.startswith('/ws') else ''}\r\n".encode())
            status = asked.recv(200).split(b"\r\n")[0].decode()
            data = b""
            if " 101 " in status:
                with contextlib.suppress(TimeoutError):
                    data = asked.recv(10_000)
        if " 200 " in status or b"kernel-ready" in data:
            wrong.append(f"{path} is open without the token: {status}")
    return wrong


def started(folder: Path) -> tuple[subprocess.Popen[str], int, str]:
    """Return the planner's process, its port, and its address. Another process may take a port that was free."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    for _ in range(3):
        port = free_port()
        command = [sys.executable, "-m", "dp_polars", "plan", "visits.parquet", "--no-browser", "--port", str(port)]
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        with contextlib.suppress(TimeoutError):
            return server, port, address(server)
        server.wait(20)
    msg = "the planner printed no address, at three ports"
    raise TimeoutError(msg)


def at_width(width: int, pictures: Path | None) -> list[str]:
    folder = Path(tempfile.mkdtemp())
    intact = write(folder / "visits.parquet")
    server, port, with_token = started(folder)
    url = f"http://127.0.0.1:{port}"
    try:
        with chrome(height=HEIGHT) as driver:
            planner = Planner(driver)
            planner.wait("the server", lambda: not listens(port))
            wrong = strangers(port)
            driver.get("about:blank")
            requests(driver)  # those of the browser's first page
            driver.get(with_token.replace("localhost", "127.0.0.1"))
            wrong += check(planner, folder, intact, width, pictures)
            asked = set(requests(driver))
            wrong += [f"asked for {one}" for one in asked if urlsplit(one).scheme == "http" and not one.startswith(url)]
            wrong += [f"asked for {one}" for one in asked if urlsplit(one).scheme in ("https", "ws", "wss")]
            wrong += [f"console: {one['message']}" for one in driver.get_log("browser") if one["level"] == "SEVERE"]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    wrong = [what for width in (1280, 400) for what in at_width(width, arguments.pictures)]
    if wrong:
        sys.exit("\n".join(wrong))
    print("from a schema to code that runs, at both widths")


if __name__ == "__main__":
    main()
