"""The page of `dp_polars.report` in a real browser: readable light and dark, narrow and wide, and on paper.

    python tests/browser/check_report.py [--screenshots FOLDER]

Exits non-zero where the page asks the network, runs a script, is too wide, is cut, or has text that is hard to read.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
from chrome import chrome, picture, requests, resize
from selenium import webdriver

import dp_polars as dpp

SCRIPT = "<script>window.ran = true</script>"
IMAGE = "<img src=https://example.org/x onerror='window.ran = true'>"
WARDS = [SCRIPT, IMAGE, "Zahn-, Mund- und Kieferheilkunde, Ambulanz", *(f"ward {number}" for number in range(1, 38))]
REASONS = ["flu", "asthma", "a fall", SCRIPT]
WIDTHS = (400, 1280)
SCHEMES = ("light", "dark")
A4 = 718  # CSS pixels between margins of 1 cm
CONTRAST = 4.5  # WCAG 2.2, 1.4.3: the least of text
PART = 1600  # pixels: the height of a picture
SMALLEST = 9  # pixels: the least height of letters in the figure

COMMON = """
const box = (element) => element.getBoundingClientRect();
const name = (element) => `${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`;
"""


def with_common(script: str) -> str:
    return COMMON + script


# Boxes that hold more than they show, and parts of the page that stand out of it.
CUT = with_common("""
const [scrolling, root] = [arguments[0], document.documentElement];
const [page, width] = [root.scrollWidth, root.clientWidth];
const all = [...document.body.querySelectorAll('*')];
const inside = (element) => scrolling && element.closest(scrolling);
return [
  ...(page > width ? [`the page is ${page} px wide`] : []),
  ...all.filter((element) => !inside(element) && box(element).right > width + 1).map(name),
  ...all.filter((element) => !inside(element) && !element.closest('svg'))
    .filter((element) => element.scrollWidth > element.clientWidth + 1)
    .filter((element) => getComputedStyle(element).display !== 'inline')
    .map(name),
];
""")
# The ratio of each text to what is behind it (WCAG 2.2), the worst first.
RATIOS = with_common("""
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (color) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = ([red, green, blue]) => {
  const linear = (part) => part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
};
const probe = document.body.appendChild(document.createElement('div'));
probe.style.background = 'Canvas';
const page = rgba(getComputedStyle(probe).backgroundColor);
probe.remove();
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const color = rgba(getComputedStyle(one).backgroundColor);
    if (color[3] === 255) return color;
  }
  return page;
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || ['STYLE', 'TITLE'].includes(element.tagName.toUpperCase())) continue;
  if (element.closest('details:not([open])') && element.tagName !== 'SUMMARY') continue;
  const style = getComputedStyle(element);
  const [low, high] = [light(rgba(element.closest('svg') ? style.fill : style.color)), light(behind(element))]
    .sort((a, b) => a - b);
  found.push([(high + 0.05) / (low + 0.05), name(element)]);
}
return [light(page), found.sort((a, b) => a[0] - b[0])];
""")
# Of each drawing: its right end and that of its box, its rightmost letter, and the least height of its letters.
DRAWINGS = with_common("""
return [...document.querySelectorAll('figure > svg')].filter((svg) => box(svg).width).map((svg) => {
  const scale = box(svg).width / svg.viewBox.baseVal.width;
  const texts = [...svg.querySelectorAll('text')];
  return {
    box: box(svg.parentElement).right,
    end: box(svg).right,
    drawn: Math.max(...texts.map((text) => box(text).right)),
    letters: Math.min(...texts.map((text) => parseFloat(getComputedStyle(text).fontSize) * scale)),
  };
});
""")
SAFE = "return [document.scripts.length, document.images.length, window.ran === undefined, document.title]"
HEIGHT = "return document.documentElement.scrollHeight"
PLACES = (
    "return [...document.querySelectorAll('.wide, dd, figure')].filter((e) => e.scrollWidth > e.clientWidth).length"
)


def write(path: Path) -> None:
    """Write the report of made-up visits: all kinds of answers, many groups, and one that is too small to show."""
    visits = pl.DataFrame(
        {
            "patient": range(8000),
            "ward": [WARDS[number % (len(WARDS) - 1)] for number in range(8000)],
            "reason": [REASONS[number % 7 % 4] for number in range(8000)],
            "days": [number * number % 31 for number in range(8000)],
        }
    )
    private = visits.dp.protect("patient", max_groups=1, max_rows_per_group=1, budget=dpp.Budget(epsilon=40))
    by_reason = private.group_by({"ward": WARDS[:30], "reason": REASONS}).agg(people=dpp.n_people(epsilon=1))
    months = {"month": [date(year, month, 1) for year in (2026, 2027) for month in range(1, 13)]}
    by_month = private.with_columns(month=pl.date(2026, pl.col("days") % 12 + 1, 1)).group_by(months)
    query = private.group_by({"ward": WARDS}).agg(
        people=dpp.n_people(epsilon=1),
        days=pl.col("days").dp.sum(0, 30, epsilon=1),
        stay=pl.col("days").dp.median(range(31), confidence=0.9, epsilon=4),
        reason=pl.col("reason").dp.mode(REASONS, gap=True, epsilon=2),
        reasons=pl.col("reason").dp.value_counts(REASONS, epsilon=2),
        mean=pl.col("days").dp.mean(0, 30, epsilon=2),
    )
    lists = private.group_by({"ward": WARDS}).agg(
        people=dpp.n_people(epsilon=1),
        days=pl.col("days").dp.quantile([0.25, 0.5, 0.9], range(31), epsilon=1),
        top=pl.col("reason").dp.top_k(2, REASONS, epsilon=1),
    )
    asked = dpp.publication(
        {
            "by ward": query,
            "by reason": by_reason,
            "by month": by_month.agg(people=dpp.n_people(epsilon=1)),
            "by ward and month": private.with_columns(month=pl.date(2026, pl.col("days") % 12 + 1, 1))
            .group_by({"ward": WARDS, **months})
            .agg(people=dpp.n_people(epsilon=1)),
            SCRIPT: lists,
        }
    )
    released = asked.release(intervals=True)
    released["by ward"] = query.release(intervals=True, min_people=50)
    assert released["by ward"]["stay"].null_count(), "no group is too small to show"
    dpp.report(
        *(released, asked, path),
        name=f"Visits by ward {SCRIPT}",
        description="Patients of 2026, by ward.",
        labels={"people": f"People {IMAGE}"},
    )


def look(driver: webdriver.Chrome, width: int, scheme: str, media: str, screenshots: Path | None) -> list[str]:
    """Return what is wrong with the page as it stands at a width, in a scheme, on a screen or in print."""
    resize(driver, width)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    on_paper = media == "print"
    wrong = [f"cut: {what}" for what in driver.execute_script(CUT, "" if on_paper else ".wide, dd, figure")]
    page, ratios = driver.execute_script(RATIOS)
    wrong += [f"contrast {ratio:.2f}: {what}" for ratio, what in ratios if ratio < CONTRAST]
    if page < 1 if on_paper or scheme == "light" else page > 0.1:
        wrong.append(f"the background has the luminance {page:.2f}")
    drawings = driver.execute_script(DRAWINGS)
    if not drawings:
        wrong.append("there is no figure")
    for drawing in drawings:
        scrolls = width == min(WIDTHS)
        if drawing["drawn"] > drawing["end"] + 1 or (not scrolls and drawing["end"] > drawing["box"] + 1):
            wrong.append(f"the figure does not fit: {drawing}")
        if drawing["letters"] < SMALLEST:
            wrong.append(f"letters of the figure are {drawing['letters']:.1f} px high")
    where = f"{media} {scheme} {width} px"
    places = driver.execute_script(PLACES)
    print(f"{where}: {len(ratios)} texts, the least contrast {ratios[0][0]:.1f}, {places} boxes scroll")
    if screenshots is not None:
        for top in range(0, driver.execute_script(HEIGHT), PART):
            clip = {"x": 0, "y": top, "width": width, "height": PART, "scale": 1}
            found = picture(driver, captureBeyondViewport=True, clip=clip)
            (screenshots / f"{media}-{scheme}-{width}-{top}.png").write_bytes(found)
    return [f"{where}: {what}" for what in wrong]


def check(driver: webdriver.Chrome, path: Path, screenshots: Path | None) -> list[str]:
    driver.get("about:blank")
    requests(driver)  # those of the browser's first page
    driver.get(path.as_uri())
    scripts, images, silent, title = driver.execute_script(SAFE)
    wrong = []
    if scripts or images or not silent or SCRIPT not in title:
        wrong.append(f"{scripts} scripts, {images} images, silent: {silent}, title: {title}")
    for media, scheme, width in (
        *(("screen", scheme, width) for scheme in SCHEMES for width in WIDTHS),
        *(("print", scheme, A4) for scheme in SCHEMES),
    ):
        wrong += look(driver, width, scheme, media, screenshots)
    if screenshots is not None:
        pdf = driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})["data"]
        (screenshots / "print.pdf").write_bytes(base64.b64decode(pdf))
    asked = requests(driver)
    if path.as_uri() not in asked:
        wrong.append("the log of requests lacks the page")
    wrong += [f"asked for {url}" for url in asked if urlsplit(url).scheme != "data" and url != path.as_uri()]
    return wrong + [f"console: {entry['message']}" for entry in driver.get_log("browser")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshots", type=Path)
    arguments = parser.parse_args()
    path = Path(tempfile.mkdtemp()) / "report.html"
    write(path)
    with chrome() as driver:
        wrong = check(driver, path, arguments.screenshots)
    if wrong:
        sys.exit("\n".join(wrong))
    print("the report is readable in all of them, and asks nobody")


if __name__ == "__main__":
    main()
