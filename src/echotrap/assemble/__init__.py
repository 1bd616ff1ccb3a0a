"""Raw rows in, one :class:`echotrap.record.Run` out.

``table`` keeps the rows as columns of numbers; ``naming`` says which key is which signal; ``steps`` says which step a row belongs
to; ``derived`` holds the rules by which signals follow from other keys; ``builder`` makes the run of them, again and again while
it grows.
"""

from __future__ import annotations

from echotrap.assemble.builder import RunBuilder

__all__ = ["RunBuilder"]
