"""The gauntlet's machinery: cases, the truth they are held to, and how results cross between two sandboxes.

The candidate runs in one sandbox and sees inputs only. Reference, oracle and judgement live in another.
"""
