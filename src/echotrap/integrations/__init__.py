"""Callbacks and hooks for training frameworks; each module needs its framework."""
