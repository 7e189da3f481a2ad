"""Other people's systems on one workload; every module here but `venv` runs in a peer's virtual environment."""
