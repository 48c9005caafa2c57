"""The command line: `pagefile pack verify FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import msgspec

from pagefile.errors import PagefileError
from pagefile.runs.pack_reader import verify_pack

#: What the shell gets to know: the same reasons as everywhere, as small numbers.
EXIT_STATUS = {
    "not_found": 3,
    "conflict": 4,
    "invalid": 5,
    "limit_exceeded": 6,
    "unavailable": 7,
    "corrupt": 8,
    "unsupported": 9,
    "forbidden": 10,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        report = verify_pack(asked.file, progress=_progress if sys.stderr.isatty() else None)
    except PagefileError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return EXIT_STATUS.get(error.code, 1)
    told = msgspec.to_builtins(report)
    if asked.json:
        print(json.dumps(told))
    else:
        width = max(len(name) for name in told)
        for name, value in told.items():
            print(f"{name:<{width}}  {value}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pagefile", description="Virtual memory for AI agents.")
    rooms = parser.add_subparsers(required=True, metavar="ROOM")
    pack = rooms.add_parser("pack", help="resume packs")
    commands = pack.add_subparsers(required=True, metavar="COMMAND")
    verify = commands.add_parser("verify", help="read all of a pack and check it; stores nothing")
    verify.add_argument("file", metavar="FILE", help="a resume pack, or an older format of one")
    verify.add_argument("--json", action="store_true", help="print JSON instead of lines")
    return parser


def _progress(done: int, total: int) -> None:
    end = "\n" if done >= total else ""
    print(f"\rread {done:,} of {total:,}", end=end, file=sys.stderr, flush=True)
