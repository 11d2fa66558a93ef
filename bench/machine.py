"""What a measured number was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

VECTORS = (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("asimd", "NEON"))


def processor() -> str:
    """Name, widest vectors and cores in use: "AMD EPYC 7763 (AVX2, 2 cores)"."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "model" in fields and "cpu family" in fields:
        name += f" family {fields['cpu family']} model {fields['model']}"
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    vectors = next((text for flag, text in VECTORS if flag in flags), "vectors unknown")
    return f"{name} ({vectors}, {len(os.sched_getaffinity(0))} cores)"
