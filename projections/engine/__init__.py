"""
The engine of views. In the order in which to read it:

    view.py       what a view is
    copies.py     the tables of a view, of which there are several copies, and what readers see
    apply.py      a batch of events into a copy, each event once; bad events are parked
    refold.py     some streams folded again; parked ones retried
    projector.py  many views kept up to date with the log
    feed.py       the same from a source other than the log
    watch.py      the position and lag of each view
    compare.py    two copies, row by row
    rebuild.py    a new copy built beside the live one, and the switch to it
    check.py      a view compared with a copy that is built anew
    inline.py     views that appends keep
    attach.py     switching a view between follower and appends
"""
