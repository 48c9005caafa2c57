"""CPU-bound handlers on a Dask cluster of two processes, one of which is killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pagefile
from pagefile import Invalid, Pagefile, Unsupported
from pagefile.dispatch import Organism, ProcessPool, Retry
from pagefile.dispatch.organism_file import check, load
from pagefile.dispatch.workers.pool import executor_at
from tests import ROOT
from tests.dispatch import cpu as dispatch_cpu
from tests.dispatch.ground import ANN, ONCE, Ask, Told, echo, run, said_in
from tests.servers.ports import free_port

pytest.importorskip("distributed")
pytestmark = pytest.mark.xdist_group("dask")

# A cluster as an operator starts it: a scheduler and two workers, in processes of their own.
CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
        host="127.0.0.1", silence_logs=50,
    ) as cluster:
        print(cluster.scheduler_address.replace("tcp://", "dask://"), flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    here = str(ROOT)
    paths = [here, *(path for path in sys.path if path and path != here)]
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Elsewhere than the tests: a store must be found by its URL alone.
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("dask://")
        yield address
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def pf(tmp_path: Path) -> Iterator[Pagefile]:
    with pagefile.open(tmp_path / "store.db") as handle:
        yield handle
        assert handle.check().problems == ()


def organism_on(pf: Pagefile, address: str) -> Organism:
    organism = Organism(pf, executor=address)
    organism.listener("compute", payload=Ask, cpu_bound=True)(dispatch_cpu.compute)
    organism.listener("fail", payload=Ask, cpu_bound=True, retry=ONCE)(dispatch_cpu.fail)
    organism.listener("die", payload=Ask, cpu_bound=True, retry=Retry(attempts=3, pause=0.001))(
        dispatch_cpu.die_once
    )
    organism.listener("forward", payload=Ask, cpu_bound=True, peers=["echo"])(dispatch_cpu.forward)
    organism.listener("echo", payload=Ask)(echo)
    return organism


def test_handlers_run_in_the_cluster_and_see_the_same_memory(pf: Pagefile, cluster: str) -> None:
    async def story() -> None:
        async with organism_on(pf, cluster) as organism:
            answers = await asyncio.gather(
                *(organism.ask(Ask("sum", n), "compute", caller=ANN) for n in (3, 4, 5, 101))
            )
            chained = await organism.ask(Ask("there and back"), "forward", caller=ANN)
            failed = await organism.ask(Ask("broken"), "fail", caller=ANN)

        texts = [answer.payload.text.split(" ") for answer in answers]
        assert [words[:2] for words in texts] == [
            [total, "['sum']"] for total in ("3", "6", "10", "5050")
        ]
        assert str(os.getpid()) not in {words[-1] for words in texts}
        assert said_in(pf, answers[-1].thread_id)[1][2] == Told("5050 from ann")
        assert chained.payload == Told("there and back")
        assert (failed.payload.code, failed.payload.message) == ("handler", "ValueError: broken")

    run(story())


def test_a_worker_killed_in_mid_task_leaves_the_effect_once(
    pf: Pagefile, cluster: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with organism_on(pf, cluster) as organism:
            dying, *others = await asyncio.gather(
                organism.ask(Ask(str(tmp_path / "mark")), "die", caller=ANN),
                *(organism.ask(Ask("sum", n), "compute", caller=ANN) for n in range(6)),
            )

        assert (tmp_path / "mark").exists()  # The worker that touched it was killed.
        assert dying.payload == Told("alive")
        effects = [said for said in said_in(pf, dying.thread_id) if said[2] == Told("effect")]
        assert len(effects) == 1
        assert [one.payload.text.split(" ")[0] for one in others] == ["0", "0", "1", "3", "6", "10"]

    run(story())


def test_a_handler_that_overruns_in_the_cluster_is_answered_for_and_its_effect_refused(
    pf: Pagefile, cluster: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "linger")

    async def story() -> None:
        pool = ProcessPool(workers=2, grace_seconds=0.2)
        organism = Organism(pf, executor=cluster, process_pool=pool)
        organism.listener("linger", payload=Ask, cpu_bound=True, timeout=2.0, retry=ONCE)(
            dispatch_cpu.linger
        )
        organism.listener("echo", payload=Told)(echo)
        async with organism:
            told = await organism.ask(Ask(place), "linger", caller=ANN)
            Path(place + ".go").touch()
            while not Path(place + ".through").exists():
                await asyncio.sleep(0.01)
            after = await organism.ask(Told("still here"), "echo", caller=ANN)

        assert told.payload.code == "timeout"
        assert after.payload == Told("still here")
        said = [said for _, _, said in said_in(pf, told.thread_id)]
        assert Told("late effect") not in said
        assert Told("too late") not in said
        assert [letter.code for letter in organism.dead_letters()] == ["timeout"]

    run(story())


def test_a_file_names_the_cluster_and_a_store_beside_it(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The workers stand in another folder, and find the same file all the same.
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "organism.yaml"
    file.write_text(
        f"""\
organism: {{name: desk}}
backend: {{url: desk.db}}
process_pool: {{executor: "{cluster}", workers: 2, grace_seconds: 20}}
listeners:
  - {{name: compute, payload_class: "tests.dispatch.ground:Ask",
      handler: "tests.dispatch.cpu:compute", cpu_bound: true}}
"""
    )
    found = load(file)

    async def story() -> None:
        async with found.organism() as organism:
            answer = await organism.ask(Ask("sum", 4), "compute", caller=ANN)

        assert answer.payload.text.startswith("6 ['sum'] ")

    run(story())
    assert (found.executor, found.process_pool) == (
        cluster,
        ProcessPool(workers=2, grace_seconds=20),
    )


def test_what_an_address_says_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "organism.yaml"
    text = """\
organism: {name: desk}
backend: {url: x.db}
listeners: []
process_pool:
  max_tasks_per_child: 3
  executor: EXECUTOR
"""

    def told(executor: str) -> list[str]:
        file.write_text(text.replace("EXECUTOR", executor))
        return [str(problem) for problem in check(file)]

    unused = (
        "line 5: process_pool.max_tasks_per_child: has no effect on the processes of an executor"
    )
    assert told("dask://127.0.0.1:8786") == [unused]
    for wrong in ("dask://127.0.0.1", "dask://a:b:c", "ray://a:1", "dask://u:p@a:1", "here"):
        lines = told(wrong)
        assert lines[0] == unused
        assert lines[1].startswith("line 6: process_pool.executor: ")
        assert "dask://host:port" in lines[1]


def test_an_address_is_checked_before_anything_runs(pf: Pagefile) -> None:
    with pytest.raises(Invalid, match="use dask://host:port"):
        Organism(pf, executor="dask://nowhere")
    with pagefile.open("memory:") as memory, pytest.raises(Unsupported, match="lives in this one"):
        Organism(memory, executor="dask://127.0.0.1:1")


def test_a_cluster_that_is_not_there_is_told_to_the_caller(
    pf: Pagefile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefile.dispatch.workers.dask_executor._CONNECT_SECONDS", 0.5)
    port = free_port()

    async def story() -> None:
        organism = Organism(pf, executor=f"dask://127.0.0.1:{port}")
        organism.listener("compute", payload=Ask, cpu_bound=True, retry=ONCE)(dispatch_cpu.compute)
        async with organism:
            answer = await organism.ask(Ask("sum", 4), "compute", caller=ANN)

        assert answer.payload.code == "worker"

    run(story())


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pagefile.dispatch.workers.dask_executor", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(Unsupported, match=r"pip install 'pagefile\[dask\]'"):
        executor_at("dask://127.0.0.1:1")


def test_workers_that_die_again_and_again_are_told_to_the_caller(
    pf: Pagefile, cluster: str
) -> None:
    async def story() -> None:
        organism = organism_on(pf, cluster)
        organism.listener("deadly", payload=Ask, cpu_bound=True, retry=ONCE)(
            dispatch_cpu.die_always
        )
        async with organism:
            deadly = await organism.ask(Ask("x"), "deadly", caller=ANN)
            after = await organism.ask(Ask("sum", 4), "compute", caller=ANN)

        assert deadly.payload.code == "worker"
        assert after.payload.text.startswith("6 ")

    run(story())


def test_a_closed_executor_takes_nothing_more() -> None:
    executor = executor_at("dask://127.0.0.1:1")
    executor.shutdown()

    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(os.getpid)
