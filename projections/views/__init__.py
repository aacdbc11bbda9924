"""
What drives views. In the order in which to read it:

    view.py        what a view is
    copies.py      the tables of a view, of which there are several copies, and what readers see
    applying.py    a batch of events into a copy, each event once; bad events are parked
    refolding.py   some streams folded anew; parked ones retried
    lane.py        one live copy on its way along the log
    projector.py   many views kept up to date
    feeding.py     the same from another source than the log
    watching.py    how far each view is
    comparing.py   two copies, row by row
    holding.py     a live copy held where it is for a moment
    built.py       what a rebuild tells of itself
    rebuilding.py  a copy made anew beside the live one, and switched to
    verifying.py   a view compared with one that is made anew
    inline.py      what an append does to a view
    attaching.py   a view that appends keep from now on, or no more
"""
