"""What the sub-commands do, in steps; `harness/cli/` reads their options."""

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C has ended."""
FORMATS = ("csv", "json", "parquet", "markdown", "perfetto", "tensorboard", "mlflow", "wandb")
"""Formats of `rlbench export`."""
REPORT_FORMATS = ("html", "pdf")
"""Formats of `rlbench report`."""
