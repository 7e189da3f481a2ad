"""What the threads of a run did, from its spans: their timelines, and the chain of who waited for whom."""
