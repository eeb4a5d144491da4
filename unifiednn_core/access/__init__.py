"""Who may do what? Roles, the table of what they allow, tokens, the ledger, and the service as one person sees it."""
