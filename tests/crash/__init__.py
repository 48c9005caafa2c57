"""Kills, power cuts, full disks, bad networks, interrupts, races and models."""
