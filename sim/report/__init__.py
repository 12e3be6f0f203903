"""What is told about a run, from its frames: nothing here decides or prices anything."""
