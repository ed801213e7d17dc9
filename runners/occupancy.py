"""Theoretical occupancy: how many blocks of a kernel one multiprocessor holds, and what limits it. Pure.

Limits are from the CUDA programming guide's table of compute capabilities and AMD's CDNA3 instruction set guide.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Multiprocessor:
    """What one SM (or AMD compute unit) has. Registers are 32-bit; for AMD they are vector registers of 64 lanes each."""

    registers: int
    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    register_unit: int
    warp_size: int


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(65536, 2048, 32, 164 * 1024, 163 * 1024, 256, 32),
    "sm_86": Multiprocessor(65536, 1536, 16, 100 * 1024, 99 * 1024, 256, 32),
    "sm_89": Multiprocessor(65536, 1536, 24, 100 * 1024, 99 * 1024, 256, 32),
    "sm_90": Multiprocessor(65536, 2048, 32, 228 * 1024, 227 * 1024, 256, 32),
    "sm_100": Multiprocessor(65536, 2048, 32, 228 * 1024, 227 * 1024, 256, 32),
    # Four SIMDs with 512 vector registers a lane each (half of them accumulation registers), up to 8 waves a SIMD.
    "gfx942": Multiprocessor(4 * 512 * 64, 2048, 32, 64 * 1024, 64 * 1024, 8 * 64, 64),
}


@dataclass(frozen=True)
class Occupancy:
    """`blocks` resident at once, the fraction of the multiprocessor's threads that they are, and what limits them."""

    blocks: int
    fraction: float
    limit: str


def occupancy(arch: str, *, registers: int, shared: int, threads: int) -> Occupancy:
    """Occupancy of a kernel with `registers` a thread, `shared` bytes and `threads` a block. Unknown architectures count as sm_90."""
    unit = MULTIPROCESSORS.get(arch, MULTIPROCESSORS["sm_90"])
    per_warp = -(-max(registers, 1) * unit.warp_size // unit.register_unit) * unit.register_unit
    warps = -(-threads // unit.warp_size)
    # The driver keeps 1 KiB of shared memory a block to itself on NVIDIA.
    reserved = 1024 if arch.startswith("sm_") else 0
    limits = {
        "registers": unit.registers // (per_warp * warps),
        "threads": unit.threads // threads if threads else 0,
        "blocks": unit.blocks,
        "shared memory": unit.shared_bytes // (shared + reserved)
        if shared <= unit.block_shared_bytes and shared + reserved
        else (0 if shared else unit.blocks),
    }
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(blocks, min(1.0, blocks * threads / unit.threads), limit)
