"""What several engines share: named SQL from files, and groups cut to the size of a request."""
