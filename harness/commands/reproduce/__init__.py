"""`rlbench reproduce`: papers' tables, as published, as predicted and as measured on emulated GPUs, with the errors."""
