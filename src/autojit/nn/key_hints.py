"""What to do about keys of a state dict that do not fit: a wrapper's prefix, or names that are nearly the same."""

from __future__ import annotations

from collections.abc import Sequence

MOST_HINTS = 5


def key_hints(missing: Sequence[str], unexpected: Sequence[str]) -> list[str]:
    """Lines for the notes of the error; none where nothing is known.

    Example:
        >>> key_hints(["weight"], ["module.weight"])[0].partition(":")[0]
        '  fix       the saved keys begin with "module."'
        >>> key_hints(["bias"], ["bais"])
        ['  note      "bias" may be saved as "bais"']
    """
    if not missing or not unexpected:
        return []
    prefix = _prefix(missing, unexpected)
    if prefix:
        taken = f"{{key.removeprefix({prefix!r}): value for key, value in state.items()}}"
        return [f'  fix       the saved keys begin with "{prefix}": load {taken}']
    prefix = _prefix(unexpected, missing)
    if prefix:
        fix = f"model.{prefix.rstrip('.')}.load_state_dict(state)"
        return [f'  fix       the model\'s keys begin with "{prefix}", the saved ones do not: {fix}']
    from difflib import get_close_matches

    found = []
    for key in missing[: 4 * MOST_HINTS]:
        near = get_close_matches(key, unexpected, 1, 0.75)
        if near:
            found.append(f'  note      "{key}" may be saved as "{near[0]}"')
    return found[:MOST_HINTS]


def _prefix(short: Sequence[str], long: Sequence[str]) -> str:
    """What all the long keys have in front of the short ones; "" if that is not so."""
    ends = [key for key in long if key.endswith(f".{short[0]}")]
    prefix = ends[0][: -len(short[0])] if ends else ""
    return prefix if prefix and {prefix + key for key in short} == set(long) else ""
