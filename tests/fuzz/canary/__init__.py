"""A hostile folder, every command, and a canary tree outside that must not change: `nox -s fuzz -- canary`.

Each round makes a place of its own: a home, temporary files, a cache and names in /dev/shm that are a user's own; and,
as somebody else might hand them over, a folder of sweeps and a folder to work in. Then commands run, one after the
other. What of the user's own has changed, what was printed, what hangs, and what is left running is a fault.
"""
