"""A type that several threads use for the first time at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Nested structs come first, so that a struct is half worked out for as long as possible.
CROWD = """
import sys, threading, types
import msgspec
from pagefile.store.codec import decoder as typed

sys.setswitchinterval(1e-6)
USES = {
    "convert": lambda shape, value: typed.convert(value, shape),
    "json": lambda shape, value: typed.from_json(msgspec.json.encode(value), shape),
    "json decoder": lambda s, v: typed.json_decoder(s).decode(msgspec.json.encode(v)),
    "msgpack decoder": lambda s, v: typed.msgpack_decoder(s).decode(msgspec.msgpack.encode(v)),
    "ready": lambda shape, value: msgspec.convert(value, typed.ready(shape)),
}
FIELDS = "".join(f"  f{n}: list[dict[str, int | None]]\\n" for n in range(20))
SOURCE = "from __future__ import annotations\\nimport msgspec\\n" + "".join(
    f"class S{n}(msgspec.Struct, kw_only=True):\\n"
    + (f"  inner: S{n - 1} | None = None\\n" if n else "") + FIELDS
    for n in range(5)
)
VALUE = {f"f{n}": [{"a": 1}] for n in range(20)}

def first_use(number, use):
    module = types.ModuleType(f"made_{number}")
    sys.modules[module.__name__] = module
    exec(SOURCE, module.__dict__)
    everybody, got = threading.Barrier(8), []
    def ask():
        everybody.wait()
        got.append(use(module.S4, VALUE))
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(got) == 8 and all(one.f0 == [{"a": 1}] for one in got)

for number in range(40):
    first_use(number, USES[sys.argv[1]])
print("fine")
"""


@pytest.mark.parametrize("use", ["convert", "json", "json decoder", "msgpack decoder", "ready"])
def test_the_first_use_of_a_struct_by_eight_threads_gives_each_its_value(use: str) -> None:
    crowd = subprocess.run(
        [sys.executable, "-c", CROWD, use], capture_output=True, text=True, timeout=120, check=False
    )

    assert (crowd.returncode, crowd.stdout.strip()) == (0, "fine"), crowd.stderr
