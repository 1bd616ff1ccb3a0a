"""Real recorded runs with their truth and the recipe that made them."""
