"""The catalogue: one file, one detector. Nobody imports a detector by name; :mod:`echotrap.registry` is the door."""
