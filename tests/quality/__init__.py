"""Known races must be found, and known-clean programs must stay silent."""
