"""How ranks reach each other: groups, stores, sockets, mailboxes."""
