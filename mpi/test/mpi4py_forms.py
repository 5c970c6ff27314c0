# SPDX-License-Identifier: Apache-2.0 OR MIT
"""mpi4py's collectives in all their forms. With the stub as argument, what the shim
counted of each is checked. Prints what this library can do, which is to be the same
with the shim and without."""

import array
import ctypes
import os
import sys

from mpi4py import MPI

FIELDS = ["enters", "leaves", "begins", "ends", "news", "frees"]


class Counts(ctypes.Structure):
    _fields_ = [(field, ctypes.c_int) for field in [*FIELDS, "inside", "last_class", "errors"]]


stub = ctypes.CDLL(sys.argv[1]) if len(sys.argv) > 1 else None
off = os.environ.get("PACELINE_MPI") == "off"
comm = MPI.COMM_WORLD.Create_cart([MPI.COMM_WORLD.size], periods=[True])
ranks = comm.size


def counted():
    counts = Counts()
    stub.stub_read(ctypes.byref(counts))
    assert counts.errors == 0 and counts.inside == 0, "unbalanced"
    assert counts.enters == counts.leaves and counts.begins == counts.ends, "unbalanced"
    return counts.enters, counts.begins


def expect(what, enters, begins, call):
    before = counted() if stub else (0, 0)
    call()
    now = counted() if stub else (enters, begins)
    if off:
        enters = begins = 0
    since = (now[0] - before[0], now[1] - before[1])
    assert since == (enters, begins), f"{what}: {since}, expected {(enters, begins)}"


def ints(*values):
    return array.array("i", values)


def places(count):
    return [1] * count, list(range(count))


class Forms:
    """Arguments of one collective, and what must be received."""

    def __init__(self, name, arguments, expected):
        self.name, self.arguments, self.expected = name, arguments, expected

    def method(self, form):
        return getattr(comm, form.format(self.name, self.name[0].lower() + self.name[1:]))

    def run(self, call):
        received = ints(*[-1] * len(self.expected))
        call(*self.arguments(received))
        assert list(received) == self.expected, f"{self.name}: {list(received)}"

    def blocking(self):
        self.run(self.method("{0}"))

    def nonblocking(self):
        self.run(lambda *arguments: self.method("I{1}")(*arguments).Wait())

    def persistent(self):
        def start(*arguments):
            request = self.method("{0}_init")(*arguments)
            request.Start()
            request.Wait()
            request.Free()

        self.run(start)


mine = [comm.rank] * ranks
everybody = list(range(ranks))
total = sum(everybody)
around = [(comm.rank - 1) % ranks, (comm.rank + 1) % ranks]
ALL = [
    Forms("Alltoall", lambda to: (ints(*mine), to), everybody),
    Forms(
        "Alltoallv",
        lambda to: ((ints(*mine), places(ranks)), (to, places(ranks))),
        everybody,
    ),
    Forms("Allgather", lambda to: (ints(comm.rank), to), everybody),
    Forms("Allgatherv", lambda to: (ints(comm.rank), (to, places(ranks))), everybody),
    Forms("Allreduce", lambda to: (ints(comm.rank), to), [total]),
    Forms("Scan", lambda to: (ints(1), to), [comm.rank + 1]),
    Forms("Reduce_scatter_block", lambda to: (ints(*mine), to), [total]),
    Forms("Neighbor_alltoall", lambda to: (ints(comm.rank, comm.rank), to), around),
]

can = [f"MPI {MPI.VERSION}.{MPI.SUBVERSION}, library {MPI.Get_version()}"]
for forms in ALL:
    expect(forms.name, 1, 0, forms.blocking)
    expect(f"I{forms.name}", 0, 1, forms.nonblocking)
    try:
        expect(f"{forms.name}_init", 0, 1, forms.persistent)
        can.append(f"{forms.name}_init")
    except NotImplementedError:
        pass
# Objects: what mpi4py itself makes of them calls collectives, too.
assert comm.allgather({"rank": comm.rank}) == [{"rank": rank} for rank in everybody]

# More than an int counts, of nothing.
nothing = MPI.BYTE.Create_contiguous(0).Commit()
try:
    comm.Bcast([bytearray(1), 1 << 31, nothing], 0)
    can.append("large counts")
except (NotImplementedError, MPI.Exception, OverflowError) as error:
    can.append(f"no large counts: {type(error).__name__}")
try:
    MPI.Session.Init().Finalize()
    can.append("sessions")
except NotImplementedError:
    can.append("no sessions")
if comm.rank == 0:
    print("\n".join(can))
