"""What is handed out: the wheel, and what registries are told of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

SOURCE = ROOT / "src"
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-c", BUILD, str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return zipfile.ZipFile(folder / ran.stdout.split()[-1])


def test_a_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    there = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "pagefile").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in wheel.namelist() if not name.startswith("pagefile-")}

    assert sorted(there ^ held) == []
    # What is no Python is forgotten most easily.
    assert {Path(name).suffix for name in held} == {
        ".json",
        ".lua",
        ".py",
        ".pyi",
        ".sql",
        ".typed",
    }


def test_a_wheel_asks_for_what_the_pages_of_the_server_are_made_of(
    wheel: zipfile.ZipFile,
) -> None:
    [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    asked = wheel.read(metadata).decode().splitlines()

    assert any(
        line.startswith("Requires-Dist: fastapi-offline") and "server" in line for line in asked
    )
