"""Each engine: the contract, and what only that engine can show."""
