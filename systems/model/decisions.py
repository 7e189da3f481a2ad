"""The engine's decision functions, compiled: the model calls the very code that the engine runs."""

from __future__ import annotations

from harness.devices import booking
from systems.engine import double_buffered, dynamic, optimal, preempt
from systems.model.compiling import compiled, compiled_with

choose_batch = compiled(dynamic.choose_batch)
whole_groups = compiled(double_buffered.whole_groups)
is_preempted = compiled(preempt.is_preempted)
pause_s = compiled(optimal.pause_s)
book = compiled_with(booking.book, end_beside=compiled(booking.end_beside))
book_core = compiled(booking.book_core)
book_link = compiled(booking.book_link)
