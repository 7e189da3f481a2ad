"""What a rank's libraries are told by its environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rlbench.harness.processes.library_variables import library_variables

AGAIN = """
import ctypes, resource

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def minibatch():
    layers = [libc.malloc(16 << 20) for _ in range(8)]
    for layer in layers:
        ctypes.memset(layer, 1, 16 << 20)
    for layer in layers:
        libc.free(layer)

for _ in range(5):
    minibatch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    minibatch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES_OF_A_LAYER = (16 << 20) // os.sysconf("SC_PAGESIZE")


def test_what_a_user_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variable by the user, another by us; and what we told a process is told to those that it starts."""
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    variables = library_variables()
    assert variables["MALLOC_TRIM_THRESHOLD_"] == "131072"
    assert variables["OMP_WAIT_POLICY"] == "PASSIVE"
    assert variables["GOMP_SPINCOUNT"] == "10000"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert {**os.environ, **library_variables()} == dict(os.environ)


@pytest.mark.parametrize("policy", ["ACTIVE", "PASSIVE"])
def test_how_a_user_has_threads_wait_is_not_overruled(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To libgomp the number of turns counts for more than the policy."""
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}.isdisjoint(library_variables())


def test_a_mini_batch_has_the_memory_of_the_one_before() -> None:
    """No page is asked for again; with glibc's own limits each is, eighty layers in ten mini-batches."""
    env = {**os.environ, **library_variables()}
    told = subprocess.run([sys.executable, "-c", AGAIN], env=env, capture_output=True, text=True, check=True)
    assert int(told.stdout) < PAGES_OF_A_LAYER
