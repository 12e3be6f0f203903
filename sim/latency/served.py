"""A profile as a simulated server uses it: with that server's CUDA graphs, and a host where the profile knows none.

Not for reading flags (`graph_flags`, `sim.config`). The one idea: what a profile was measured with is a fact of another
server; what the flags say of this one takes its place, and what nobody measured is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.config import VLLM_DEFAULTS
from sim.latency.graph_flags import settled_graphs

if TYPE_CHECKING:
    from sim.config import EngineConfig, Settled
    from sim.latency.graphs import Graphs
    from sim.latency.profile import Profile

HOST_STEP_S, HOST_ROW_S = 367e-6, 12e-6
"""The host's time of a step, and per sequence, where a profile does not have them: under async scheduling nobody sees
them, and a synchronous server adds them to each step. They hardly depend on the GPU. The first is h100-llama-3.1-8b's,
measured with one request at a time; the second an estimate (8 us of vLLM 0.32's own scheduler on one core, half of that
again for input rows and outputs)."""


_GRAPH_FLAGS = ("enforce_eager", "compilation_config", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
                "optimization_level", "performance_mode")  # fmt: skip


class Served(NamedTuple):
    """What prices a run."""

    profile: Profile
    graphs: Graphs
    """How steps run. The profile's law has these too where it was fitted to what graphs compute, padding and all."""
    host: str
    """Where the host's time is from: measured, estimated, or hidden (behind the GPU)."""


def as_served(profile: Profile, settled: Settled) -> Served:
    """The profile for a server of these settings. Raises InputError for graphs that vLLM refuses."""
    law = profile.law
    gpu = profile.known_gpu()
    graphs = law.graphs
    if gpu is not None or law.graphs.sizes:
        graphs = settled_graphs(settled, (9, 0) if gpu is None else gpu.capability)
    if law.graphs.sizes:
        law = replace(law, graphs=graphs)
    # A server measured without async scheduling has its host in step_s, if not apart from it.
    hidden = not law.host_step_s and (bool(profile.server.get("async_scheduling")) or law.host_row_s > 0)
    host = "hidden" if hidden else "measured"
    if hidden and not settled.scheduler.async_scheduling:
        law = replace(law, host_step_s=HOST_STEP_S, host_row_s=law.host_row_s or HOST_ROW_S)
        host = "estimated"
    return Served(replace(profile, law=law), graphs, host)


def unpriced(config: EngineConfig, profile: Profile, settled: Settled) -> list[str]:
    """One line for each thing that these flags ask for, and whose time is not of the profile's making."""
    served = as_served(profile, settled)
    told = []
    asked = {name for name in _GRAPH_FLAGS if getattr(config, name) is not None}
    unasked: dict[str, Any] = {name: profile.server.get(name, VLLM_DEFAULTS.get(name)) for name in asked}
    if asked and served.graphs != as_served(profile, settled._replace(said=replace(settled.said, **unasked))).graphs:
        if not profile.law.graphs.sizes:
            told.append(f"profile {profile.name} does not know CUDA graphs apart: other ones change no step's time")
        elif not served.graphs.decode_padding and not profile.law.eager_s:
            told.append(f"profile {profile.name} does not tell what launching kernels takes: decodes that are not one"
                        " whole graph are too fast")  # fmt: skip
    if served.host == "estimated":
        told.append(
            f"a synchronous step waits for the host: {HOST_STEP_S * 1e6:.0f} us and {HOST_ROW_S * 1e6:.0f} us per"
            f" sequence are an estimate, as profile {profile.name} was measured under async scheduling"
        )
    if settled.speculation is not None:
        told.append("drafting and verifying drafts are priced by the profile's law; neither was measured")
    return told
