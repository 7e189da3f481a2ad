"""Other people's systems on one workload; every module here but `venv` runs in a virtual environment of the peer's."""
