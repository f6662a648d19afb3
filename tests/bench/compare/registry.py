"""Peers and references by name. A peer is a function (row, tensors) -> Peer, called once for each set of buffers,
where `tensors` are Kachel's own by parameter name; it raises Absent where it is not installed or cannot do the row.
A reference is a function (row, tensors) -> the expected output in float64."""


class Absent(Exception):
    """Why a peer is not in a row."""


class Peer:
    """`run()` computes and returns the output; `out` is where, if that is known before, so that it can be poisoned.
    `reference` names another reference than the row's; "" is: the result is not compared."""

    def __init__(self, run, out=None, reference=None):
        self.run, self.out, self.reference = run, out, reference


class Registry(dict):
    def __call__(self, *names):
        def add(function):
            for name in names:
                assert name not in self, name
                self[name] = function
            return function
        return add
