"""What can be asked from outside: over HTTP, over MCP, on the command line.

access/                   keys, tokens, rights, and the record of refusals
http/, mcp/, cli/         one folder each
combined                  MCP behind the HTTP server's port
"""
