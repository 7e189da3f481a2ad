"""Output for people and other programs: terminal tables, the HTML report, and exports of run records."""
