"""Worker processes: what they run, send, keep and hold."""
