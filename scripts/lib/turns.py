"""The order in which what is measured takes turns."""


def in_turns(things, turns):
    """(turn, position, thing): each thing once in each turn. The order is rotated from turn to turn, so that a
    disturbance, or what one leaves behind, does not always meet the same one."""
    for turn in range(turns):
        first = turn % len(things) if things else 0
        for position, thing in enumerate(things[first:] + things[:first]):
            yield turn, position, thing
