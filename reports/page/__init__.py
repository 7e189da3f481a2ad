"""The HTML report: the page, its charts, worker timelines and provenance."""
