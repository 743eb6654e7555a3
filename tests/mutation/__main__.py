"""Mutation testing of the privacy core: every mutant must make a test fail.

    python -m tests.mutation                    all of them: about two hours on one core
    python -m tests.mutation claims.py racing   those with one of these words in their file, function or effect
    python -m tests.mutation --check            only whether every mutant still fits the sources, and its tests are there
    python -m tests.mutation --sample 0.1 --by TEXT     a tenth of them, the same for the same text

Each mutant is applied to a scratch copy of the tree, and its tests are run there. The exit code is 1 where one lives
that is not known to be equivalent, 2 where one does not fit the sources or the tests fail without any.
"""

from __future__ import annotations

import argparse
import math
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
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING

from tests.helpers.places import ROOT
from tests.mutation import accounting, frames, mechanisms, queries, rowwise, spark, sql
from tests.mutation.fitting import MisfitError, defined, mutated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutation.mutant import Mutant

MUTANTS = [
    mutant for module in (accounting, mechanisms, queries, frames, rowwise, spark, sql) for mutant in module.MUTANTS
]
# A test that hangs is a test that fails; pytest-timeout ends what Python can end, the rest is killed.
TEST_SECONDS, RUN_SECONDS = 120, 1200
FAILED = (1, 2)  # of pytest: tests failed, or could not even be collected


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation", description="Every mutant must make a test fail.")
    parser.add_argument("words", nargs="*", help="only mutants with one of these words in file, function or effect")
    parser.add_argument("--check", action="store_true", help="only look whether the mutants fit the sources")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many: to go on with a run that was stopped")
    parser.add_argument("--sample", type=float, default=1, metavar="SHARE", help="only this share of them")
    parser.add_argument("--by", default="", metavar="TEXT", help="what the sample hangs on, such as a commit")
    arguments = parser.parse_args()
    words = arguments.words
    chosen = [each for each in MUTANTS if not words or any(word in described(each) for word in words)]
    chosen = sampled(chosen, arguments.sample, arguments.by)[arguments.skip :]
    stale = [(each, why) for each in chosen if (why := misfit(each))]
    for each, why in stale:
        print(f"{described(each)}\n- {each.old}\n+ {each.new}\n{why}\n")
    print(f"{len(chosen)} mutants, {len(stale)} of them do not fit the sources or the tests")
    if stale or arguments.check or not chosen:
        return 2 if stale else 0
    return report(chosen, run(chosen, arguments.jobs))


def described(mutant: Mutant) -> str:
    return f"{file_of(mutant)}, {mutant.function}: {mutant.breaks}"


def file_of(mutant: Mutant) -> str:
    """Return the file that a mutant changes, below `dp_polars/`."""
    try:
        return defined(mutant.function)[0].path.as_posix()
    except MisfitError:
        return "?"


def sampled(mutants: Sequence[Mutant], share: float, by: str) -> list[Mutant]:
    """Return a share of the mutants, which follows from a text and from what the mutants are."""

    def digest(mutant: Mutant) -> bytes:
        return sha256("\0".join([by, mutant.function, mutant.old, mutant.new]).encode()).digest()

    taken = set(sorted(mutants, key=digest)[: math.ceil(share * len(mutants))])
    return [mutant for mutant in mutants if mutant in taken]


def misfit(mutant: Mutant, package: Path = ROOT / "dp_polars") -> str:
    """Return why a mutant can't be applied, or its tests can't be run, or nothing."""
    try:
        file, text = mutated(mutant, package)
        compile(text, str(file), "exec")
    except MisfitError as error:
        return str(error)
    except (SyntaxError, ValueError) as error:
        return f"the mutant is no Python: {error}"
    gone = [f"tests/{test} is not there" for test in named_tests(mutant) if not is_there(test)]
    gone += [f"no test has {word} in its name" for word in chosen_words(mutant) if word not in all_tests()]
    return next(iter(gone), "")


def named_tests(mutant: Mutant) -> list[str]:
    return [word for word in shlex.split(mutant.tests) if ".py" in word]


def chosen_words(mutant: Mutant) -> list[str]:
    """Return what names of tests must have, by pytest's `-k`."""
    words = shlex.split(mutant.tests)
    chosen = " ".join(after for before, after in pairwise(words) if before == "-k")
    return [word for word in re.findall(r"\w+", chosen) if word not in ("and", "or", "not")]


@cache
def all_tests() -> str:
    files = (each for each in (ROOT / "tests").rglob("*.py") if "mutation" not in each.parts)
    return "\n".join(each.read_text(encoding="utf-8") for each in files)


@cache
def is_there(test: str) -> bool:
    """Return whether a file of tests has what stands after `::`; a class may have a test from another file."""
    path, *names = test.partition("[")[0].split("::")
    if not (ROOT / "tests" / path).is_file():
        return False
    texts = [(ROOT / "tests" / path).read_text(encoding="utf-8")]
    for i, name in enumerate(names):
        if not any(re.search(rf"^\s*(async def|def|class) {name}\b", text, re.MULTILINE) for text in texts):
            return False
        if i == 0 and len(names) > 1:
            texts = [each.read_text(encoding="utf-8") for each in (ROOT / "tests").rglob("*.py")]
    return True


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
            print(f"{result:10} {time.monotonic() - start:5.0f} s  {described(mutant)} [{by}]", flush=True)
            return result

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(fate, mutants))


def tried(tree: Path, mutant: Mutant, sound: set[str]) -> tuple[str, str]:
    """Return what becomes of a mutant, and the test that kills it; `sound` are tests that pass without a mutant."""
    if mutant.equivalent:
        return "equivalent", mutant.equivalent
    if missing := [name for name in mutant.needs.split() if not (find_spec(name) or shutil.which(name))]:
        return "not run", f"{' and '.join(missing)} is not installed"
    file, changed = mutated(mutant)
    path = tree / "dp_polars" / file
    text = path.read_text(encoding="utf-8")
    path.write_text(changed, encoding="utf-8")
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
    options = ["-q", "-x", "-n0", "-rfE", "--tb=no", "-m", "", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
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
        counts.setdefault(file_of(mutant), Counter())[fate] += 1
    print(f"\n{'':36}" + "".join(f"{kind:>12}" for kind in kinds))
    for file, own in [*sorted(counts.items()), ("all", Counter(fates))]:
        print(f"{file:36}" + "".join(f"{own[kind]:>12}" for kind in kinds))
    for mutant, fate in zip(mutants, fates, strict=True):
        if fate in ("alive", "broken"):
            print(f"\n{fate}: {described(mutant)} ({mutant.tests})\n- {mutant.old}\n+ {mutant.new}")
    return 2 if "broken" in fates else int("alive" in fates)


if __name__ == "__main__":
    sys.exit(main())
