"""How sensitive a probe is: the probability that each kind of KV-cache fault changes an answer."""

from reference_engine.probe.sensitivity.balance import balanced_prompt

__all__ = ["balanced_prompt"]
