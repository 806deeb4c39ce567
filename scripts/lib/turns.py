"""The order in which what is measured takes turns."""

import random


def order_of(things, turn):
    """Shuffled anew every other turn, reversed in between: over two turns, all have the same average position. Depends
    on nothing but the turn, so that an interrupted measurement goes on in the same order."""
    order = list(things)
    random.Random(turn // 2).shuffle(order)
    return order if turn % 2 == 0 else order[::-1]


def in_turns(things, turns):
    """(turn, position, thing): each thing once in each turn. The order differs from turn to turn, so that a
    disturbance, or what one leaves behind, does not always meet the same one."""
    for turn in range(turns):
        for position, thing in enumerate(order_of(things, turn)):
            yield turn, position, thing
