"""What a target checkout looks like: detected by reading it, never assumed; and edits of its files that touch nothing else.

`detect(tree)` reads; `edits` changes existing files; nothing here writes to a disk or imports the target's code.
"""

from agents.conventions.detection import detect
from agents.conventions.record import Conventions, ExistingOp, NotAKernelLibrary

__all__ = ["Conventions", "ExistingOp", "NotAKernelLibrary", "detect"]
