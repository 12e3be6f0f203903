"""What the tables of a finished run say of its making (`Frames.meta`), checked before a report builds on it.

Not for what it means. The one idea: such a table may have been through other hands, so every part that a report reads
is asked for its kind once, here, and what will not do is told with the file's name.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.core.config import SchedulerConfig
from sim.drafters import DrafterSize
from sim.errors import InputError
from sim.latency.fields import Fields
from sim.report.run_columns import MOST_EXACT

if TYPE_CHECKING:
    import os

    from sim.report.frames import Frames

_TEXTS = ("vllm_semantics", "profile", "model", "label", "trace", "ramp_up_strategy")
_RATES = ("request_rate", "burstiness", "ramp_up_start_rps", "ramp_up_end_rps")
_SAME_S = 1e-6


def require_meta(frames: Frames, file: str | os.PathLike[str]) -> None:
    """Raise InputError about the first part of it that is not as `Frames` has it; each may be missing."""
    said = Fields(file, frames.meta)
    for name in _there(said, *_TEXTS):
        said.text(name)
    for name in _there(said, *_RATES):
        if said.table[name] != math.inf:  # all at once, evenly
            said.number(name)
    for name in _there(said, "response_s"):
        _require_response(said, said.number(name), frames)
    for name in _there(said, "num_gpu_blocks", "max_concurrency"):
        said.integer(name, least=1, most=MOST_EXACT)
    for name in _there(said, "partial"):
        said.truth(name)
    for name in _there(said, "flags", "workload"):
        said.object(name)
    for name in _there(said, "config"):
        _require_config(said.object(name))
    for name in _there(said, "host"):
        _require_host(said.object(name))
    for name in _there(said, "spec_decode"):
        _require_drafts(said.object(name))
    for name in _there(said, "server"):
        _require_server(said.object(name), said.table.get("config"))


def _there(said: Fields, *names: str) -> list[str]:
    return [name for name in names if said.table.get(name) is not None]


def _require_response(said: Fields, response_s: float, frames: Frames) -> None:
    """First tokens must have left the server at the end of a step."""
    left_s = frames.requests["first_token_s"].dropna().to_numpy() - response_s
    ends_s = np.concatenate(([-math.inf], np.sort(frames.steps["end_s"].to_numpy()), [math.inf]))
    after = np.searchsorted(ends_s, left_s)
    apart_s = np.minimum(ends_s[after] - left_s, left_s - ends_s[after - 1])
    if len(frames.steps) and (apart_s > _SAME_S).any():
        raise said.wrong("response_s", "the time from a step's end until a request's first_token_s")


def _require_config(said: Fields) -> None:
    known = [field.name for field in fields(SchedulerConfig)]
    if set(said.table) != set(known):
        told = f"{said.at.rstrip('.')}: of another version: replay it again with this one"
        raise InputError(told, file=said.file)
    for name in known:
        value = said.table[name]
        if name == "watermark":
            said.number(name)
        elif isinstance(value, float | list | dict) or (isinstance(value, int) and not 0 <= value <= MOST_EXACT):
            raise said.wrong(name, "a whole number, true or false, or a text")
    try:
        SchedulerConfig(**said.table)
    except InputError as error:
        raise InputError(
            file=said.file, field=f"{said.at}{error.field}", value=error.value, expected=error.expected
        ) from None
    except TypeError:  # a text where a number belongs, or the other way round
        raise InputError("not the settings of a scheduler", file=said.file, field=said.at.rstrip(".")) from None


def _require_host(said: Fields) -> None:
    said.text("mode")
    for name in ("num_blocks", "block_bytes"):
        said.integer(name)
    for name in ("link_busy_s", "link_end_s"):
        said.number(name)


def _require_drafts(said: Fields) -> None:
    tokens = said.integer("num_draft_tokens", most=MOST_EXACT)
    said.integer("num_drafts", least=min(1, tokens), most=MOST_EXACT)
    _require_list(said, "num_accepted_tokens_per_pos", most=MOST_EXACT, whole=True)


def _require_server(said: Fields, config: object) -> None:
    for name in _there(said, "cudagraph_mode"):
        said.text(name)
    for name in _there(said, "cudagraph_capture_sizes"):
        sizes = _require_list(said, name, most=MOST_EXACT, whole=True)
        if sizes != sorted({*sizes} - {0}):
            raise said.wrong(name, "rising sizes from 1")
    for name in _there(said, "speculation"):
        speculation = said.object(name)
        rates = _require_list(speculation, "acceptance_rates", most=1)
        if isinstance(config, dict) and len(rates) != config["num_speculative_tokens"]:
            told = f"one rate for each of {config['num_speculative_tokens']}, as config.num_speculative_tokens says"
            raise speculation.wrong("acceptance_rates", told)
        drafter = speculation.object("drafter")
        if set(drafter.table) != set(DrafterSize._fields):
            raise speculation.wrong("drafter", f"an object of {', '.join(DrafterSize._fields)}")
        drafter.integer("passes", most=MOST_EXACT)
        for share in DrafterSize._fields[1:]:
            drafter.number(share)


def _require_list(said: Fields, name: str, *, most: float, whole: bool = False) -> list[Any]:
    kinds = int if whole else (int, float)
    values = said.table.get(name)
    if not isinstance(values, list) or not all(
        isinstance(value, kinds) and not isinstance(value, bool) and 0 <= value <= most for value in values
    ):
        raise said.wrong(name, f"a list of {'whole ' * whole}numbers from 0 to {most:g}")
    return values
