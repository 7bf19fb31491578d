"""Documents that are made from the program itself: `python -m docs` writes them again."""

from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
