"""elpase's simulator: vLLM's V1 scheduler decides, a latency profile prices each step, SimPy lets the time pass.

`import sim` is quick: a public name is fetched from its module when it is first used, so numpy, pandas, SimPy and
matplotlib are loaded by whoever needs them. Not public: what `__all__` does not name.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all else here
if TYPE_CHECKING:
    from sim.config import EngineConfig
    from sim.errors import ElpaseError, InputError
    from sim.experiment import ExtrapolationWarning, Result, simulate
    from sim.latency.profile import Profile
    from sim.sweeps.preemption.comparison import PreemptionComparison, compare_preemption
    from sim.sweeps.sweep import Sweep, sweep

__version__ = "0.1.0"
__all__ = [
    "ElpaseError",
    "EngineConfig",
    "ExtrapolationWarning",
    "InputError",
    "PreemptionComparison",
    "Profile",
    "Result",
    "Sweep",
    "compare_preemption",
    "simulate",
    "sweep",
]

_HOME = {
    "ElpaseError": "sim.errors",
    "EngineConfig": "sim.config",
    "ExtrapolationWarning": "sim.experiment",
    "InputError": "sim.errors",
    "PreemptionComparison": "sim.sweeps.preemption.comparison",
    "Profile": "sim.latency.profile",
    "Result": "sim.experiment",
    "Sweep": "sim.sweeps.sweep",
    "compare_preemption": "sim.sweeps.preemption.comparison",
    "simulate": "sim.experiment",
    "sweep": "sim.sweeps.sweep",
}
"""Public name -> the module that defines it."""


if not TYPE_CHECKING:  # a type checker that saw it would take any name for a public one

    def __getattr__(name: str) -> object:
        # Here, as it is no part of what `elpase` loads before it can be interrupted.
        from importlib import import_module

        if name not in _HOME:
            raise AttributeError(f"module 'sim' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
