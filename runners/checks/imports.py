"""The new modules and exports import, by themselves, in the target's environment.

Liger#1169: an unconditional import of a class that only newer transformers has broke the whole package. Liger#1263: a path
behind a flag had a bad import.
"""

from __future__ import annotations

from runners.protocol import Gate, Outcome, Verdict


def import_verdicts(names: list[str], found: object, why: str) -> list[Verdict]:
    """One verdict for all imports. `found` maps names to None or what went wrong; `why` says how the process ended early."""
    if not names:
        return []
    if not isinstance(found, dict):
        return [_verdict(Outcome.failed, f"the package can't be imported: {why or 'its process ended'}", "")]
    wrong = {name: found.get(name, "was not reached") for name in names if found.get(name, "was not reached")}
    if wrong:
        name, message = next(iter(wrong.items()))
        return [
            _verdict(
                Outcome.failed,
                f"{name}: {str(message).splitlines()[-1]}",
                "\n".join(f"{n}: {m}" for n, m in wrong.items()),
            )
        ]
    return [_verdict(Outcome.passed, f"{len(names)} imports work: {', '.join(names)}", "")]


def _verdict(outcome: Outcome, summary: str, details: str) -> Verdict:
    return Verdict(
        check="imports",
        gate=Gate.correctness,
        outcome=outcome,
        summary=summary[:500],
        details=details[:20_000],
    )
