"""How ranks reach each other and their workers: groups, stores, sockets, mailboxes, commands."""
