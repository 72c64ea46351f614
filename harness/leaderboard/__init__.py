"""The leaderboard: a static site over a folder of results, correctness beside every number."""
