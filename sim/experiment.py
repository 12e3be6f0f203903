"""One run: a workload, settings and a profile go in, tables come out. The one idea: a run is a pure function of these.

Not for reading files or flags (`sim.cli`, `workloads`), nor for many runs.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from operator import index
from typing import TYPE_CHECKING

from sim import __version__
from sim.config import EngineConfig, Settled
from sim.engine.cluster import serve
from sim.engine.link import Link
from sim.engine.pricing import Pricing
from sim.engine.sampler import Sampler
from sim.errors import InputError
from sim.host import HostLink
from sim.kv_choice import window_note
from sim.latency import served
from sim.latency.graph_flags import mode_of
from sim.latency.profile import DEFAULT_PROFILE, Profile
from sim.report.frames import Digest
from sim.report.log import RunLog
from sim.report.summary import SummaryOptions, summarize, summarize_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    from sim.core.config import SchedulerConfig
    from sim.engine.pricing import OutsidePolicy
    from sim.report.frames import Frames, Itls
    from workloads import Request

VLLM_SEMANTICS = "0.32"
"""The vLLM version whose scheduler is mirrored."""


class ExtrapolationWarning(UserWarning):
    """Steps were priced outside the shapes that the profile was fitted on."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run left: `requests`, `steps` (data frames, see `Frames`), `itls` and `summary()`.

    Without `keep_steps` there are no `steps`, `itls` and `frames`: InputError.
    """

    record: Frames | Digest

    @property
    def frames(self) -> Frames:
        """All that was kept."""
        if isinstance(self.record, Digest):
            raise InputError("steps and token gaps were not kept: simulate(..., keep_steps=True) keeps them")
        return self.record

    @property
    def meta(self) -> Mapping[str, object]:
        """What made the run (`Frames.meta`)."""
        return self.record.meta

    @property
    def requests(self) -> pd.DataFrame:
        """One row per request, in order of arrival."""
        return self.record.requests

    @property
    def steps(self) -> pd.DataFrame:
        """One row per engine step."""
        return self.frames.steps

    @property
    def itls(self) -> Itls:
        """Inter-token latencies per request, in seconds."""
        return self.frames.itls

    def noting(self, meta: Mapping[str, object]) -> Result:
        """The same, with more said of its making (`Frames.meta`)."""
        return Result(replace(self.record, meta={**self.meta, **meta}))

    def summary(self, options: SummaryOptions | None = None, *, detailed: bool = True) -> dict[str, object]:
        """The result as `vllm bench serve --save-detailed` writes it, plus a `sim` block.

        detailed: with its lists, one entry per request, `itls` one per token. Without `keep_steps` there are none, and
        the ITL's percentiles are within `sim.itl_percentile_error`.
        """
        if isinstance(self.record, Digest):
            return summarize_digest(self.record, options)
        return summarize(self.record, options, detailed=detailed)


def simulate(
    requests: Iterable[Request],
    config: EngineConfig | Settled | SchedulerConfig | None = None,
    profile: Profile | str = DEFAULT_PROFILE,
    *,
    max_in_flight: int | None = None,
    seed: int = 0,
    outside: OutsidePolicy = "warn",
    check: bool = False,
    leap: bool = True,
    keep_steps: bool = True,
    on_progress: Callable[[float, int], None] | None = None,
    link: HostLink | None = None,
    meta: Mapping[str, object] | None = None,
) -> Result:
    """Replay `requests` (in order of arrival) against one simulated server and return what happened.

    config: flags as `vllm serve` takes them (unset ones: the profile's server, then vLLM's defaults), those settled
        already, or a scheduler's numbers alone, for a server as the profile's was. max_in_flight: the client's cap
        (`vllm bench serve --max-concurrency`). seed: of which drafts are accepted.
    outside: what to do with a step that the profile was not fitted for: warn and extrapolate, raise, or clip.
    check: verify the core's invariants at every step (slow). leap: take many steps at once where nobody joins; the
        result is the same, bit for bit. keep_steps: without, memory does not grow with steps and tokens, and `Result`
        has neither. on_progress: called with simulated seconds and requests done, whenever some are. link: to host
        memory, for settled numbers; None: the flags', or the GPU's. meta: what to note of the run's origin (seed, ...).

    Ctrl-C ends the run early: the result holds what has happened, and says `partial`. Raises InputError for settings
    that vLLM refuses and for requests that can get nowhere; warns with ExtrapolationWarning.
    """
    max_in_flight = None if max_in_flight is None else _whole("max_in_flight", max_in_flight)
    profile = Profile.load(profile) if isinstance(profile, str) else profile
    for line in unpriced(config, profile) if isinstance(config, EngineConfig) else ():
        warnings.warn(line, ExtrapolationWarning, stacklevel=2)
    if config is None or isinstance(config, EngineConfig):
        config = settled(config, profile)
    numbers = config.scheduler if isinstance(config, Settled) else config
    pcie = Link(link or settle_link(config, profile))
    pricing, sampler = _parts(config, profile, outside, _whole("seed", seed))
    log = RunLog(profile.client.response_s, keep_steps=keep_steps)
    finished = serve(
        requests, numbers, pricing, sampler, log, pcie, max_in_flight, check=check, leap=leap, on_progress=on_progress
    )
    if pricing.first_outside is not None:
        warnings.warn(f"{pricing.first_outside}; such steps are extrapolated", ExtrapolationWarning, stacklevel=2)
    facts = _facts(profile, numbers, max_in_flight, finished) | _host(numbers, pcie)
    if sampler.acceptance() is not None:
        facts["spec_decode"] = sampler.acceptance()
    if isinstance(config, Settled):
        facts["server"] = server(config, profile)
    return Result((log.frames if keep_steps else log.digest)(facts | dict(meta or {})))


def _whole(name: str, value: int) -> int:
    """Python's own number of numpy's: result.json knows no other, and compiled modules take no other."""
    try:
        return int(index(value))
    except TypeError:
        raise InputError(field=name, value=value, expected="a whole number") from None


def _parts(
    config: Settled | SchedulerConfig, profile: Profile, outside: OutsidePolicy, seed: int
) -> tuple[Pricing, Sampler]:
    """What says how long a step takes, and what comes out of it."""
    if not isinstance(config, Settled):
        if config.num_speculative_tokens:
            expected = "0, or the flags themselves: a scheduler's numbers alone do not say how drafts fare"
            raise InputError(field="num_speculative_tokens", value=config.num_speculative_tokens, expected=expected)
        return Pricing(profile, outside), Sampler(config, None, seed)
    used = served.as_served(profile, config)
    pricing = Pricing(used.profile, outside, used.graphs, config.drafter)
    return pricing, Sampler(config.scheduler, config.speculation, seed)


def _facts(profile: Profile, config: SchedulerConfig, max_in_flight: int | None, finished: bool) -> dict[str, object]:
    """What the reports need to know of a run's making."""
    return {
        "elpase_version": __version__,
        "vllm_semantics": VLLM_SEMANTICS,
        "profile": profile.name,
        "model": profile.model,
        "config": asdict(config),
        "num_gpu_blocks": config.num_gpu_blocks,
        "max_concurrency": max_in_flight,
        "response_s": profile.client.response_s,
        "partial": not finished,
    }


def _host(config: SchedulerConfig, link: Link) -> dict[str, object]:
    """Of the host's memory, where KV goes there."""
    if config.kv_preemption == "recompute":
        return {}
    return {
        "host": {
            "mode": config.kv_preemption,
            "num_blocks": config.num_host_blocks,
            "block_size": config.block_size,
            "block_bytes": link.spec.block_bytes,
            "bytes_per_s": link.spec.bytes_per_s,
            "both_bytes_per_s": link.spec.both_bytes_per_s,
            "latency_s": link.spec.latency_s,
            "link_busy_s": link.busy_s,
            "link_end_s": link.worked_out_s,
        }
    }


def settle(config: EngineConfig | SchedulerConfig | None, profile: Profile) -> SchedulerConfig:
    """The scheduler's numbers for flags on top of a profile's server. Raises InputError where vLLM refuses."""
    config = config or EngineConfig()
    return settled(config, profile).scheduler if isinstance(config, EngineConfig) else config


def settle_link(config: Settled | SchedulerConfig, profile: Profile) -> HostLink:
    """The link to host memory: as the flags say, else that of the profile's GPU and KV."""
    said = config.host.link if isinstance(config, Settled) else None
    block_size = config.kv.block_size if isinstance(config, Settled) else config.block_size
    return said or HostLink.of_gpu(profile.known_gpu(), block_size * profile.kv_bytes_per_token)


def settled(config: EngineConfig | None, profile: Profile) -> Settled:
    """All that follows from flags on top of a profile's server. Raises InputError where vLLM refuses."""
    config = config or EngineConfig()
    return config.settle(
        gpu=profile.known_gpu(), model=profile.known_model(config.dtype), server_defaults=_measured_under(profile)
    )


def server(config: Settled, profile: Profile) -> dict[str, object]:
    """What a result says of the server beside the scheduler's numbers, in vLLM's names where it has any."""
    said, drafts, used = config.said, config.speculation, served.as_served(profile, config)
    return {
        "model": profile.model,
        "gpu": profile.gpu,
        "tensor_parallel_size": said.tensor_parallel_size,
        "dtype": profile.dtype if said.dtype == "auto" else said.dtype,
        "kv_cache_dtype": said.kv_cache_dtype,
        "num_gpu_blocks_from": config.kv.origin,
        "cudagraph_mode": mode_of(used.graphs),
        "cudagraph_capture_sizes": list(used.graphs.sizes),
        "host_time": used.host,
        "speculation": None if drafts is None else {**asdict(drafts), "drafter": config.drafter._asdict()},
    }


def unpriced(config: EngineConfig, profile: Profile) -> list[str]:
    """One line for each flag that changes how long steps take in a way that the profile does not tell, and for KV that
    is kept longer than vLLM would."""
    measured = {"kv_cache_dtype": profile.dtype, **_measured_under(profile)}
    told = [
        f"--{name.replace('_', '-')} {asked} changes the KV blocks only: profile {profile.name}'s step times are of"
        f" {measured[name]}"
        for name in ("tensor_parallel_size", "dtype", "kv_cache_dtype")
        for asked in [getattr(config, name)]
        if asked not in (None, "auto", measured[name])
    ]
    kept = window_note(config, profile.known_model())
    return [*told, *([kept] if kept else []), *served.unpriced(config, profile, settled(config, profile))]


def _measured_under(profile: Profile) -> dict[str, object]:
    """The flags that a profile's server had, with those that the profile states elsewhere."""
    stated = {"dtype": profile.dtype, "tensor_parallel_size": profile.tensor_parallel_size}
    return {**stated, **profile.server}
