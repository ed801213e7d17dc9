"""Random numbers that a reference may draw: Triton's own, written out in PyTorch, so that the mask is exact. Pure.

torch.rand draws from a global state that no kernel shares, so a reference that uses it is no function of its arguments.
`philox_uniform(x, seed)` is: element i of x gets number i % 4 of tl.rand4x(seed, i // 4), bit for bit. (tl.rand would throw
three of every four numbers away: on an H200 dropout then takes 0.42 ms instead of 0.18 at 8192 x 16384 in bfloat16.) A
reference carries its source, which runs anywhere torch does; the tracer recognises the text and puts one operation in its place.
"""

from __future__ import annotations

import ast

from kernels.syntax import syntax_tree

NAME = "philox_uniform"
OPERATION = "liger_bot.uniform.default"
# Salmon et al. 2011 (Philox-4x32-10), as triton/language/random.py has it: uint_to_uniform_float of each word of philox.
SOURCE = '''
def philox_uniform(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """Random numbers in [0, 1), one an element of x: number i % 4 of tl.rand4x(seed, i // 4), in int64, bit for bit."""
    low = 0xFFFFFFFF  # Philox-4x32 works on unsigned words of 32 bits
    index = torch.arange(x.numel(), device=x.device).view(x.shape)
    c0, c1, c2, c3 = (index >> 2) & low, index >> 34, 0 * index, 0 * index
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1 = ((b >> 32) & low) ^ c1 ^ k0, b & low
        c2, c3 = ((a >> 32) & low) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    word = torch.stack((c0, c1, c2, c3)).gather(0, (index & 3).unsqueeze(0)).squeeze(0)
    return torch.minimum(word, low - word).float() * 4.6566127342e-10
'''


def draws_uniform(source: str) -> bool:
    """Whether a reference defines `philox_uniform` exactly as SOURCE does; docstring, comments and layout don't count."""
    wanted = _code(syntax_tree(SOURCE).body[0])
    try:
        body = syntax_tree(source).body
    except SyntaxError:
        return False
    return any(isinstance(node, ast.FunctionDef) and _code(node) == wanted for node in body)


def _code(node: ast.stmt) -> str:
    if not isinstance(node, ast.FunctionDef):
        raise TypeError("a function is expected")
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    parameters = [a.arg for a in node.args.args]
    return f"{node.name}({', '.join(parameters)}): " + "\n".join(ast.dump(statement) for statement in body)
