"""Mutation testing of the privacy core: every mutant must make a test fail.

    python -m tests.mutation                    all of them: about an hour on one core
    python -m tests.mutation claims.py racing   those of some files, or with some words in what they break
    python -m tests.mutation --check            only whether every mutant still fits the sources

Each mutant is applied to a scratch copy of the tree, and its tests are run there. The exit code is 1 where one lives
that is not known to be equivalent, 2 where one does not fit the sources or the tests fail without any.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING

from tests.helpers.places import ROOT
from tests.mutation import accounting, frames, mechanisms, queries, rowwise, sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutation.mutant import Mutant

MUTANTS = [
    *accounting.MUTANTS,
    *mechanisms.MUTANTS,
    *queries.MUTANTS,
    *frames.MUTANTS,
    *rowwise.MUTANTS,
    *sql.MUTANTS,
]
# A test that hangs is a test that fails; pytest-timeout ends what Python can end, the rest is killed.
TEST_SECONDS, RUN_SECONDS = 120, 1200
FAILED = (1, 2)  # of pytest: tests failed, or could not even be collected


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation", description="Every mutant must make a test fail.")
    parser.add_argument("words", nargs="*", help="only mutants with one of these words in file or effect")
    parser.add_argument("--check", action="store_true", help="only look whether the mutants fit the sources")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many: to go on with a run that was stopped")
    arguments = parser.parse_args()
    words = arguments.words
    chosen = [each for each in MUTANTS if not words or any(word in f"{each.file} {each.breaks}" for word in words)]
    chosen = chosen[arguments.skip :]
    stale = [(each, why) for each in chosen if (why := misfit(each))]
    for each, why in stale:
        print(f"{each.file}: {why}\n{each.old}")
    print(f"{len(chosen)} mutants, {len(stale)} of them do not fit the sources")
    if stale or arguments.check or not chosen:
        return 2 if stale else 0
    return report(chosen, run(chosen, arguments.jobs))


def misfit(mutant: Mutant) -> str:
    """Return why a mutant can't be applied, or nothing."""
    text = (ROOT / "dp_polars" / mutant.file).read_text(encoding="utf-8")
    found = text.count(mutant.old)
    if found != 1:
        return f"the text must be there once, is there {found} times"
    try:
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    except SyntaxError as error:
        return f"the mutant is no Python: {error}"
    return "" if mutant.old != mutant.new else "the mutant changes nothing"


def run(mutants: Sequence[Mutant], jobs: int) -> list[str]:
    """Return what became of each mutant.

    "killed", "alive", "equivalent", "not run" (its tests need what is not installed) or "broken" (its tests fail
    without it).
    """
    sound: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: Queue[Path] = Queue()
        for job in range(jobs):
            trees.put(copied(Path(folder) / str(job)))

        def fate(mutant: Mutant) -> str:
            tree, start = trees.get(), time.monotonic()
            try:
                result, by = tried(tree, mutant, sound)
            finally:
                trees.put(tree)
            print(f"{result:10} {time.monotonic() - start:5.0f} s  {mutant.file}: {mutant.breaks} [{by}]", flush=True)
            return result

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(fate, mutants))


def tried(tree: Path, mutant: Mutant, sound: set[str]) -> tuple[str, str]:
    """Return what becomes of a mutant, and the test that kills it; `sound` are tests that pass without a mutant."""
    if mutant.equivalent:
        return "equivalent", mutant.equivalent
    if mutant.needs and find_spec(mutant.needs) is None:
        return "not run", f"{mutant.needs} is not installed"
    path = tree / "dp_polars" / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    tests = [f"tests/{word}" if ".py" in word else word for word in shlex.split(mutant.tests)]
    try:
        killer = failing(tree, tests)
    finally:
        path.write_text(text, encoding="utf-8")
    if killer is None:
        return "alive", ""
    alone = [killer] if killer else tests
    if not sound.issuperset(alone):
        if failing(tree, alone) is not None:
            return "broken", killer
        sound.update(alone)
    return "killed", killer or "a crash, or an end to patience"


def copied(tree: Path) -> Path:
    """Return a copy of what the tests need, which is what they import."""
    ignore = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in ("dp_polars", "tests", "docs", "examples"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tree / name)
    found = subprocess.run(
        [sys.executable, "-c", "import dp_polars; print(dp_polars.__file__)"],
        cwd=tree,
        env=environment(tree),
        capture_output=True,
        text=True,
        check=True,
    )
    if Path(found.stdout.strip()).parent != tree / "dp_polars":
        msg = f"the copy must be what is imported, got {found.stdout.strip()}."
        raise RuntimeError(msg)
    return tree


def environment(tree: Path) -> dict[str, str]:
    others = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{others}", "PYTHONDONTWRITEBYTECODE": "1"}


def failing(tree: Path, tests: Sequence[str]) -> str | None:
    """Return the test that fails, "" where that is not known (it crashes, or does not end), None where all pass."""
    options = ["-q", "-x", "-n0", "-rfE", "--tb=no", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
    options.append("--hypothesis-profile=mutants")
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=tree,
            env=environment(tree),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    told = ended.stdout.decode(errors="replace")
    if ended.returncode > max(FAILED):
        msg = f"pytest must run the tests {tests}, got the exit code {ended.returncode}:\n{told}"
        raise RuntimeError(msg)
    if ended.returncode == 0:
        return None
    named = re.findall(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", told, re.MULTILINE)
    return str(named[-1]) if named else ""


def report(mutants: Sequence[Mutant], fates: Sequence[str]) -> int:
    """Print a table by file, and all that is not killed; return the exit code."""
    kinds = ["killed", "alive", "equivalent", "not run", "broken"]
    counts: dict[str, Counter[str]] = {}
    for mutant, fate in zip(mutants, fates, strict=True):
        counts.setdefault(mutant.file, Counter())[fate] += 1
    print(f"\n{'':36}" + "".join(f"{kind:>12}" for kind in kinds))
    for file, own in [*sorted(counts.items()), ("all", Counter(fates))]:
        print(f"{file:36}" + "".join(f"{own[kind]:>12}" for kind in kinds))
    for mutant, fate in zip(mutants, fates, strict=True):
        if fate in ("alive", "broken"):
            print(f"\n{fate}: {mutant.file}, {mutant.breaks} ({mutant.tests})\n- {mutant.old}\n+ {mutant.new}")
    return 2 if "broken" in fates else int("alive" in fates)


if __name__ == "__main__":
    sys.exit(main())
