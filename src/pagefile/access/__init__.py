"""Who may do what: keys, tokens, rights, and the record of those who were refused."""
