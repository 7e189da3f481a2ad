"""What the sub-commands do, in steps; `harness/cli/` gives them their options."""
