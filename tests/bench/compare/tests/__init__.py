"""Tests that need neither a GPU nor a package: `python3 -m unittest discover -s compare/tests -t .` in tests/bench."""
