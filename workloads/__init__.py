"""What clients send: requests, where they come from and when. Imports nothing of ours."""
