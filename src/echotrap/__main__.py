"""``python -m echotrap``."""

from echotrap.cli import main

if __name__ == "__main__":
    main()
