"""What an agent is doing: runs, their working sets and ledgers, and the artifacts they leave."""
