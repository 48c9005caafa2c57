"""Working sets, ledgers, artifacts and packs."""
