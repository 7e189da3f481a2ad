"""The errors that end a rank when its environment workers do not go on."""


class WorkerDied(RuntimeError):  # noqa: N818  says what happened, as BrokenPipeError's kin do
    """An environment worker ended; the text holds its traceback, or the signal that killed it."""


class WorkerStalled(RuntimeError):  # noqa: N818
    """An environment has not answered for too long; the text holds its worker's stack."""
