"""Lets time pass: SimPy processes around the core. The only importer of simpy."""
