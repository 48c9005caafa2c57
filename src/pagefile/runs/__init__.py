"""What an agent is doing: working sets, ledgers, episodes, packs."""
