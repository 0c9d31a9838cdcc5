"""The `headway` command: one file per command in `commands`, what they share beside it."""
