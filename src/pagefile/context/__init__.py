"""What an agent saw: threads of immutable slots, forkable, shared between processes."""
