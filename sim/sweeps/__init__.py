"""Many runs, and what they say together: which settings, run where, kept how, and which of them is best.

`sim.sweep` is the way in for programs, `elpase sweep` for people. A sweep is a pure function of its study: the same
settings, seeds and files give the same bytes, on one core or on a cluster, in one go or after a kill.
"""
