"""From measured steps to a latency profile. The simulator never imports this package: they meet in the profile's JSON."""
