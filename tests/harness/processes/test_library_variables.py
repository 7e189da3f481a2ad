"""What a rank's libraries are told by its environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.processes.library_variables import library_variables

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
    """One variable by the user, another by us."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    variables = library_variables()
    assert variables["OMP_WAIT_POLICY"] == "ACTIVE"
    assert variables["GOMP_SPINCOUNT"] == "10000"


def test_a_mini_batch_has_the_memory_of_the_one_before() -> None:
    """No page is asked for again; with glibc's own limits each is, eighty layers in ten mini-batches."""
    env = {**os.environ, **library_variables()}
    told = subprocess.run([sys.executable, "-c", AGAIN], env=env, capture_output=True, text=True, check=True)
    assert int(told.stdout) < PAGES_OF_A_LAYER
