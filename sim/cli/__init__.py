"""The command line: one file per verb, each exporting `command`; `main` finds them."""
