"""What an agent knows: long-term items, proposed, then committed."""
