"""RLlib's APPO and IMPALA; see README.md beside this file."""
