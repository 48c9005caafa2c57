"""What is reached from outside: HTTP, MCP, the command line, the client, and keys."""
