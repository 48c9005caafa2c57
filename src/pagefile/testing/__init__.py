"""The contract kit: what is needed to test an engine, or a vector arm, of your own.

An engine's test class derives from a contract and supplies one fixture, `place`; a test may not be
overridden, and one about a promise that the engine does not declare is skipped by name. To read:

1. `backend`: what a contract knows about the place under test: open, crash, remains, finish
2. `contract/`: the store's promises S1 to S11, and `promises`, which counts what was tested
3. `races`, with `racer`: many writers at once, in threads and in processes
4. `stories`, with `model` and `faults`: random stories that an engine and plain Python live through
5. `context/`, `memory/`: the rooms above, on the engine
6. `arms/`: vectors that are kept elsewhere, or by the engine itself

`pip install 'pagefile[testing]'` brings pytest and hypothesis; no server is started from here.
"""
