"""`python -m metalforge`: the command line, where its script is not on the path."""

from metalforge.cli import main

if __name__ == "__main__":
    main()
