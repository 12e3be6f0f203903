"""From measured steps to a latency profile: the JSON in which calibration and simulation meet, and only there."""
