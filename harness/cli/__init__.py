"""The options of the sub-commands; their steps are in `harness/commands/`."""
