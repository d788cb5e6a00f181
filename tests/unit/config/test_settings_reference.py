from pathlib import Path

from penstock.config.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def test_the_reference_page_says_what_the_code_does() -> None:
    # To mend it: python -m penstock.config.reference > docs/reference/settings.md
    assert PAGE.read_text().splitlines() == list(reference())
