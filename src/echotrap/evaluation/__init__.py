"""How good is the diagnosis? Simulated runs, labelled folders, scores and baselines; ``echotrap bench`` is its command."""
