"""Results of runs: records, safe reading of files, statistics, fairness, summaries, verdicts, published figures."""
