"""The engine's decision functions, compiled: the model calls the very code that the engine runs."""

from __future__ import annotations

from harness.devices import booking
from systems.choices import collect, preempt
from systems.model.compiling import compiled, compiled_with

choose_batch = compiled(collect.choose_batch)
whole_groups = compiled(collect.whole_groups)
is_preempted = compiled(preempt.is_preempted)
pause_s = compiled(preempt.pause_s)
book = compiled_with(booking.book, end_beside=compiled(booking.end_beside))
book_core = compiled(booking.book_core)
book_link = compiled(booking.book_link)
