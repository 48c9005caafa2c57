"""What contributors run: generators and seeded faults."""
