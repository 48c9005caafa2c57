"""The tests, by the rooms of the package that they are about.

`store`, `engines`, `context`, `recall`, `memory`, `runs`, `assembly`, `dispatch` and `surfaces` are
rooms. `crash` kills processes, fails disks and races; `project` is about docs, examples, what is
frozen and the suite itself. `servers` starts what tests need: databases, brokers, our own programs.
`golden` and `kept` are files that later versions are held to.

The contract that every engine is held to is shipped: `pagefile.testing`.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
