"""The documentation site: what ``mkdocs build`` needs beyond the pages of ``docs/``.

``hook`` is what mkdocs calls. ``public_names`` says which names there are and on which page each one is; ``entries``
knows signature, text and source of one; ``example_book`` has the examples and runs them; ``reference`` writes the
pages; ``navigation`` reads the menu off ``docs/index.md``; ``repository`` brings in files that pages link to.
"""
