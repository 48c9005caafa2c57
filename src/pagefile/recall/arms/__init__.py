"""Vector arms: where the vectors of a user may lie, and how they are asked for the nearest."""
