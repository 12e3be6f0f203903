"""What this machine calls the device that a real server runs on, and how much memory that has."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from sim.errors import InputError

_ASK_GPU = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]


def cpu_facts() -> dict[str, Any]:
    """device, device_memory_bytes and driver (none) of the CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"device": next(names, platform.machine() or "CPU"), "device_memory_bytes": memory, "driver": ""}


def gpu_facts() -> dict[str, Any]:
    """The same of the first GPU. Raises InputError where none answers."""
    try:
        asked = subprocess.run(_ASK_GPU, capture_output=True, text=True, timeout=30, check=True)
        name, mebibytes, driver = (part.strip() for part in asked.stdout.splitlines()[0].split(","))
        return {"device": name, "device_memory_bytes": int(mebibytes) << 20, "driver": driver}
    except (OSError, subprocess.SubprocessError, IndexError, ValueError) as error:
        raise InputError("nvidia-smi tells of no GPU, and this vLLM is not a CPU build") from error
