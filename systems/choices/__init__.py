"""The five choices that make a system: settings and pure decisions, without torch."""
