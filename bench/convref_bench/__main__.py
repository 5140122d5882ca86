"""`python -m convref_bench`."""

from convref.cli import run

from .cli import main

if __name__ == "__main__":
    run(main)
