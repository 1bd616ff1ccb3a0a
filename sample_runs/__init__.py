"""Recorded runs of tiny agents, each with its truth and the recipe that made it."""
