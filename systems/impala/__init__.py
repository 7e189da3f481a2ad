"""IMPALA: actors with copies of the policy, one learner."""
