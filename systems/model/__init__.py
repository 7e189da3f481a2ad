"""A discrete-event model of the systems, on the times of a profile; it calls the engine's own decision functions."""
