"""The sub-commands and their options; their steps, and options that they pass on as one, are in `harness/commands/`."""
