"""Ways in from outside: the command line, the MCP server."""
