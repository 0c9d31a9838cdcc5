"""What every layer may use: errors, settings, ids, the clock."""
