"""Runs snippets on a GPU and records what it said (needs torch); shows the records on pages (never imports torch)."""
