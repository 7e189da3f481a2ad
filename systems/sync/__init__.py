"""SyncOnRL."""
