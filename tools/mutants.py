"""Seed faults, one at a time, and see which the tests notice.

A fault is a unified diff, `tools/mutants/ROOM/NN-name.diff`. Its first line says what it does,
its second names the tests that should fail with it:

    # an expired key is let in
    # tests: tests/surfaces/test_access.py -k expired

The tree is copied to a scratch folder, and each fault is applied there: the working tree is never
edited. A fault is noticed when one of its tests fails or hangs with it, and the same test passes
without it. A fault whose diff no longer applies is stale and counts for nothing: make the diff
again, or delete it with the code.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tools" / "mutants"
#: What is compiled goes along: a copy has the time of its original, so it is taken for its own.
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "dist", "*.db*")
#: The share of a room's faults that its tests must notice.
_LEAST_SHARE = 0.9
#: What pytest ends with when tests failed; with anything else none of them judged the fault.
_TESTS_FAILED = 1
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
#: Printed before a test runs; what became of it is added when it has ended.
_BEGUN = re.compile(r"^(tests/[^:\n]+::.+?)(?: [A-Z]+ +\[ *\d+%\]| ?Timeout .*|)$", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    room: str
    path: Path
    effect: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.room}/{self.path.stem}"


@dataclass(frozen=True)
class Verdict:
    fault: Fault
    is_noticed: bool = False
    is_stale: bool = False
    #: The tests that noticed it, or why it is neither in a few words.
    judges: tuple[str, ...] = ()
    reason: str = ""


def read_faults(folder: Path) -> list[Fault]:
    """The faults in `folder`, by room and number."""
    return [_read(path) for path in sorted(folder.glob("*/*.diff"))]


def _read(path: Path) -> Fault:
    effect, tests = path.read_text(encoding="utf-8").split("\n", 2)[:2]
    if not effect.startswith("# ") or not tests.startswith("# tests: "):
        raise SystemExit(
            f"{path}: begin it with '# what it does' and '# tests: tests/test_x.py [-k expression]'"
        )
    named = tuple(shlex.split(tests.removeprefix("# tests: ")))
    return Fault(path.parent.name, path, effect.removeprefix("# "), named)


def choose(faults: Sequence[Fault], most: int) -> list[Fault]:
    """At most `most` faults of each room, the same in every run; 0 is all."""
    chosen = []
    for room in sorted({fault.room for fault in faults}):
        mine = [fault for fault in faults if fault.room == room]
        if 0 < most < len(mine):
            picked = random.Random(room).sample(range(len(mine)), most)
            mine = [mine[place] for place in sorted(picked)]
        chosen += mine
    return chosen


class Bench:
    """One scratch copy of the tree, in which one fault at a time is tried."""

    def __init__(self, folder: Path, seconds: float, hang_seconds: float) -> None:
        self._folder = folder
        self._tree = folder / "tree"
        self._seconds = seconds
        self._hang_seconds = hang_seconds
        shutil.copytree(ROOT, self._tree, ignore=_LEFT_OUT, symlinks=True)
        imported = self._run(sys.executable, "-c", "import pagefile; print(pagefile.__file__)")
        if not imported[1].startswith(str(self._tree)):
            raise SystemExit(f"the copy is not what is imported: {imported[1]}")

    def try_(self, fault: Fault) -> Verdict:
        """Run the tests of `fault` with it."""
        if not all((self._tree / _file(test)).exists() for test in fault.tests if _is_path(test)):
            return Verdict(fault, reason="its tests do not exist")
        if self._apply(fault, "--check")[0]:
            return Verdict(fault, is_stale=True)
        with self._seeded(fault):
            status, printed = self._test(fault.tests, "-x")
        if status is None:
            return Verdict(fault, reason=f"the tests did not end in {self._seconds:.0f} s")
        if status == 0:
            return Verdict(fault, reason="all tests passed")
        if status != _TESTS_FAILED:
            return Verdict(fault, reason=f"pytest ended with {status} and judged nothing")
        failed = _FAILED.search(printed)
        begun = _BEGUN.findall(printed)
        judges = (failed[1],) if failed else tuple(begun[-1:]) or fault.tests
        return Verdict(fault, is_noticed=True, judges=judges)

    def doubted(self, tests: Sequence[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Which of these fail without any fault too, and so judge nothing."""
        # Once and all at the same time; when that is not what happens, each by itself.
        if not tests or self._test([test for each in tests for test in each])[0] == 0:
            return set()
        return {each for each in tests if self._test(each)[0] != 0}

    @contextmanager
    def _seeded(self, fault: Fault) -> Iterator[None]:
        status, error = self._apply(fault)
        if status:
            raise SystemExit(f"{fault.path} could not be applied: {error}")
        try:
            yield
        finally:
            # Old times with old bytes: no compiled file of the faulty source is taken for it.
            for file in _files(fault):
                shutil.copy2(ROOT / file, self._tree / file)

    def _apply(self, fault: Fault, *options: str) -> tuple[int | None, str]:
        return self._run("git", "apply", "--recount", *options, str(fault.path))

    def _test(self, tests: Sequence[str], *more: str) -> tuple[int | None, str]:
        base = self._folder / "base"
        options = [*more, "-v", "--tb=no", "-p", "no:cacheprovider", f"--basetemp={base}"]
        # A test that hangs is ended, and the run with it.
        options += ["-o", f"faulthandler_timeout={self._hang_seconds}"]
        options += ["-o", "faulthandler_exit_on_timeout=true"]
        return self._run(sys.executable, "-m", "pytest", *options, *tests)

    def _run(self, *command: str) -> tuple[int | None, str]:
        """The exit status, None if it did not end in time, and what was printed."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._tree / "src"),
            "GIT_CEILING_DIRECTORIES": str(self._folder),
        }
        process = subprocess.Popen(
            command,
            cwd=self._tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=self._seconds)
            return process.returncode, printed
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            # What the tests started ends with them.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_path(test: str) -> bool:
    return test.startswith("tests/")


def _file(test: str) -> str:
    return test.split("::")[0]


def _files(fault: Fault) -> list[str]:
    lines = fault.path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("--- a/") for line in lines if line.startswith("--- a/")]


def try_all(
    faults: Sequence[Fault], *, jobs: int, seconds: float, hang_seconds: float
) -> Iterator[list[Verdict]]:
    """The verdicts, one room after the other."""
    benches: queue.SimpleQueue[Bench] = queue.SimpleQueue()
    printing = threading.Lock()

    def judge(fault: Fault) -> Verdict:
        bench = benches.get()
        try:
            verdict = bench.try_(fault)
        finally:
            benches.put(bench)
        with printing:
            words = f"{_word(verdict):8} {fault.name}  {' '.join(verdict.judges)}{verdict.reason}"
            print(words.rstrip(), file=sys.stderr, flush=True)
        return verdict

    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        # Tests that give up their rights go on reading the copy.
        os.chmod(scratch, 0o755)
        for number in range(jobs):
            benches.put(Bench(Path(scratch) / str(number), seconds, hang_seconds))
        with ThreadPoolExecutor(jobs) as pool:
            for room in sorted({fault.room for fault in faults}):
                verdicts = list(pool.map(judge, (each for each in faults if each.room == room)))
                bench = benches.get()
                yield _confirmed(bench, verdicts)
                benches.put(bench)


def _confirmed(bench: Bench, verdicts: Sequence[Verdict]) -> list[Verdict]:
    doubted = bench.doubted(sorted({each.judges for each in verdicts if each.judges}))
    return [
        Verdict(each.fault, reason=f"without it fails too: {' '.join(each.judges)}")
        if each.judges in doubted
        else each
        for each in verdicts
    ]


def _word(verdict: Verdict) -> str:
    if verdict.is_noticed:
        return "noticed"
    return "stale" if verdict.is_stale else "survived"


def report(verdicts: Sequence[Verdict], width: int) -> bool:
    """Print a room's line of the table and what was not noticed; whether it notices enough."""
    seeded = sum(not one.is_stale for one in verdicts)
    noticed = sum(one.is_noticed for one in verdicts)
    enough = noticed >= _LEAST_SHARE * seeded
    room = verdicts[0].fault.room
    print(f"{room:{width}}  {noticed} / {seeded}{'' if enough else '  too few'}")
    for one in verdicts:
        if one.is_stale:
            print(f"  stale: {one.fault.name}: its diff no longer applies")
        elif not one.is_noticed:
            print(f"  survived: {one.fault.name}: {one.fault.effect} ({one.reason})")
    sys.stdout.flush()
    return enough


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--room", action="append", help="only this room; may be repeated")
    parser.add_argument("--sample", type=int, default=0, help="at most so many of each room")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once")
    parser.add_argument("--seconds", type=float, default=600, help="the longest run for one fault")
    parser.add_argument("--hang-seconds", type=float, default=120, help="the longest single test")
    parser.add_argument("names", nargs="*", help="only faults whose name contains one of these")
    args = parser.parse_args()

    faults = read_faults(FAULTS)
    if args.room:
        unknown = sorted(set(args.room) - {fault.room for fault in faults})
        if unknown:
            parser.error(f"there are no faults in {', '.join(unknown)}")
        faults = [fault for fault in faults if fault.room in args.room]
    if args.names:
        faults = [fault for fault in faults if any(name in fault.name for name in args.names)]
    width = max((len(fault.room) for fault in faults), default=0)
    all_verdicts, enough = [], True
    for verdicts in try_all(
        choose(faults, args.sample),
        jobs=args.jobs,
        seconds=args.seconds,
        hang_seconds=args.hang_seconds,
    ):
        enough = report(verdicts, width) and enough
        all_verdicts += verdicts
    seeded = sum(not one.is_stale for one in all_verdicts)
    print(f"{'all':{width}}  {sum(one.is_noticed for one in all_verdicts)} / {seeded}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
