"""Looks at one model of the installed transformers: what it is made of, and which Liger classes compute the same.

Executes the code of transformers and of a target repository: only inside a sandbox. Loaded by its path there, as a package
that imports none of ours but itself.
"""
