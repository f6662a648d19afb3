"""The comparison of Kachel with its peers.

    capi, kachel      kachel.h through ctypes: the declarations, then objects
    row, rows_*       what is compared, as data; table collects the rows
    cuda, cpu         a device: random tensors, timers, references, and which peers there are
    fills_*           tensors that a row wants otherwise than random
    references_*      what is right
    peers_*, triton_* the other side
    measure           prepares, checks and times one row
    stats, machine    medians; what the machine was and did
    report, svg       tables, JSON, plots
    main              the command

A new row is an entry in one of the tables of rows_*; a new peer is a function with @PEERS in one of peers_*.
"""
