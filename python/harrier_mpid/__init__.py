"""Programs in keys and values on the ranks of MPI: O tasks are generators of pairs, A tasks iterate over what they receive.

    def words(task):
        for line in open(files[task.rank]):
            for word in line.split():
                yield word, 1

    def counts(task):
        for word, numbers in task.groups():
            sys.stdout.write(f"{word}\t{sum(numbers)}\n")

    harrier_mpid.run(words, counts, key=str, value=int, combine="sum", o_tasks=len(files))

It stands on the C library (libmpid.so), which a wheel has in it; HARRIER_MPID_LIBRARY names another one, and without either the one of
the system is used. A program is started alone, or as ranks: mpirun -n 4 python3 program.py. All ranks run the same program, and `run` is called once.
"""

import ctypes
import ctypes.util
import glob
import os
import pickle
import struct
import sys

__all__ = ["run", "Task", "JobError"]

_SUCCESS, _END = 0, 1
_ARRANGEMENTS = {"plain": 0, "grouped": 1, "sorted": 2}
_COMBINER = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
    ctypes.c_void_p, ctypes.c_size_t,
)
_PARTITIONER = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class JobError(Exception):
    """The job has failed; the same on every rank."""


def _load():
    within = glob.glob(os.path.join(os.path.dirname(__file__), "_library", "*.so"))
    tried = [os.environ.get("HARRIER_MPID_LIBRARY"), *within, ctypes.util.find_library("mpid")]
    for path in tried:
        if path and (os.sep not in path or os.path.exists(path)):
            library = ctypes.CDLL(path)
            break
    else:
        raise ImportError("libmpid.so was not found: set HARRIER_MPID_LIBRARY to its path")
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.MPI_D_Error_message.restype = ctypes.c_char_p
    library.MPI_D_Send.argtypes = [ctypes.c_char_p, size, ctypes.c_char_p, size]
    library.MPI_D_Send_many.argtypes = [size, pointer, size, pointer, size]
    library.MPI_D_Recv_many.argtypes = [size, pointer, size, pointer, size, ctypes.POINTER(size)]
    library.MPI_D_Fail.argtypes = [ctypes.c_char_p]
    library.MPI_D_Reads.argtypes = [ctypes.c_char_p]
    library.MPI_D_At.argtypes = [ctypes.c_uint64]
    library.MPI_D_Set_partitioner.argtypes = [_PARTITIONER]
    return library


class _Text:
    encode = staticmethod(str.encode)
    decode = staticmethod(bytes.decode)


class _Bytes:
    encode = staticmethod(bytes)
    decode = staticmethod(bytes)


class _OrderedInt:
    """For keys: the order of the bytes is that of the numbers."""

    @staticmethod
    def encode(number):
        return struct.pack(">Q", (number + (1 << 63)) & ((1 << 64) - 1))

    @staticmethod
    def decode(data):
        return struct.unpack(">Q", data)[0] - (1 << 63)


class _NativeInt:
    """For values: what the library can add up."""

    _form = struct.Struct("=q")
    encode = _form.pack

    @classmethod
    def decode(cls, data):
        return cls._form.unpack(data)[0]


class _Float:
    _form = struct.Struct("=d")
    encode = _form.pack

    @classmethod
    def decode(cls, data):
        return cls._form.unpack(data)[0]


class _Object:
    encode = staticmethod(pickle.dumps)
    decode = staticmethod(pickle.loads)


_KEYS = {str: _Text, bytes: _Bytes, int: _OrderedInt}
_VALUES = {str: _Text, bytes: _Bytes, int: _NativeInt, float: _Float, object: _Object}


class Task:
    """An O or A task: `rank` is its number, `size` how many of its side there are."""

    def __init__(self, library, side, key, value):
        self._library, self._key, self._value = library, key, value
        self.side = side
        self.rank, self.size = self._number("rank"), self._number("size")

    def _number(self, what):
        number = ctypes.c_int()
        _check(self._library, getattr(self._library, "MPI_D_Comm_" + what)(1 if self.side == "O" else 2, ctypes.byref(number)))
        return number.value

    def reads(self, source):
        """Says what the O task reads from now on, such as a file: errors name it."""
        _check(self._library, self._library.MPI_D_Reads(str(source).encode()))

    def at(self, position):
        """Says where in what it reads the O task is, such as a line: errors name it as the place of the record."""
        _check(self._library, self._library.MPI_D_At(position))

    def send(self, key, value):
        """Sends one pair from an O task; the same as to yield it."""
        key, value = self._key.encode(key), self._value.encode(value)
        _check(self._library, self._library.MPI_D_Send(key, len(key), value, len(value)))

    def send_arrays(self, keys, values):
        """Sends a pair for each element of two contiguous NumPy arrays, whose memory is read in place.

        The pairs are the elements' bytes in the machine's order: receive them with `arrays`, and with the same types."""
        for array in (keys, values):
            if not array.flags.c_contiguous or array.ndim != 1:
                raise ValueError("arrays of one dimension, without gaps, are sent")
        if len(keys) != len(values):
            raise ValueError("there are as many keys as values")
        sent = self._library.MPI_D_Send_many(
            len(keys), keys.ctypes.data, keys.itemsize, values.ctypes.data, values.itemsize
        )
        _check(self._library, sent)

    def pairs(self):
        """The pairs of an A task, in the order of the arrangement."""
        key, value = ctypes.c_void_p(), ctypes.c_void_p()
        key_bytes, value_bytes = ctypes.c_size_t(), ctypes.c_size_t()
        places = [ctypes.byref(place) for place in (key, key_bytes, value, value_bytes)]
        receive, text = self._library.MPI_D_Recv, ctypes.string_at
        while True:
            code = receive(*places)
            if code == _END:
                return
            _check(self._library, code)
            yield self._key.decode(text(key, key_bytes.value)), self._value.decode(text(value, value_bytes.value))

    def groups(self):
        """The keys of an A task, each with an iterator over its values, to be read before the next key."""
        pairs = self.pairs()
        ahead = next(pairs, None)

        def values(key):
            nonlocal ahead
            while ahead is not None and ahead[0] == key:
                value = ahead[1]
                ahead = next(pairs, None)
                yield value

        while ahead is not None:
            key = ahead[0]
            group = values(key)
            yield key, group
            for _ in group:
                pass

    def arrays(self, key_type, value_type, length=65536):
        """The pairs of an A task as NumPy arrays of up to `length` elements, which the library writes into.

        Each is used again for the next: copy what is to stay."""
        import numpy

        keys, values = numpy.empty(length, key_type), numpy.empty(length, value_type)
        received = ctypes.c_size_t()
        while True:
            code = self._library.MPI_D_Recv_many(
                length, keys.ctypes.data, keys.itemsize, values.ctypes.data, values.itemsize, ctypes.byref(received)
            )
            _check(self._library, code)
            if received.value == 0:
                return
            yield keys[: received.value], values[: received.value]


def _check(library, code):
    if code != _SUCCESS:
        raise JobError(library.MPI_D_Error_message().decode())


def _combiner(combine, value):
    def combined(_key, _key_bytes, held, held_bytes, room, other, other_bytes):
        try:
            left = value.decode(ctypes.string_at(held, held_bytes))
            data = value.encode(combine(left, value.decode(ctypes.string_at(other, other_bytes))))
        except Exception as error:  # It cannot pass through the library.
            print(f"mpid: the combiner: {error!r}", file=sys.stderr)
            return -1
        if len(data) > room:
            return -1
        ctypes.memmove(held, data, len(data))
        return len(data)

    return _COMBINER(combined)


def _partitioner(partition, key):
    def chosen(data, length, tasks):
        try:
            return partition(key.decode(ctypes.string_at(data, length)), tasks)
        except Exception as error:
            print(f"mpid: the partitioner: {error!r}", file=sys.stderr)
            return tasks  # No task: the job fails.

    return _PARTITIONER(chosen)


def run(o, a, key=str, value=object, arrangement="grouped", combine=None, partition=None, o_tasks=None, a_tasks=None):
    """Runs a job, and leaves the ranks. Collective.

    `o(task)` is called for each O task and yields pairs, or sends them; `a(task)` for each A task, on the rank that has its pairs.
    `key` is str, bytes or int; `value` one of those, float, or object, which is pickled. `combine` is "sum" for values that are int,
    or a function of two values. `o_tasks` and `a_tasks`: so many and no others; without them, as the command line says (mpidrun -O and
    -A). Returns what the A tasks of this rank returned, by their number.

    Raises JobError; ValueError if the command line says another number of tasks than the program, or says that it goes round or
    streams (mpidrun -mode ITER and STREAM), which only programs in Rust do."""
    library = _load()
    key, value_type, value = _KEYS[key], value, _VALUES[value]
    for side, tasks in (("O", o_tasks), ("A", a_tasks)):
        if tasks is not None:
            told = os.environ.setdefault("HARRIER_MPID_" + side, str(tasks))
            if told != str(tasks):
                raise ValueError(f"the program has {tasks} {side} tasks, and was told {told} (mpidrun -{side})")
    mode = os.environ.get("HARRIER_MPID_MODE", "COM")
    if mode in ("ITER", "STREAM"):
        raise ValueError(f"programs in Python run in mode COM, and this one was started in mode {mode} (mpidrun -mode)")
    library.MPI_D_Set_arrangement(_ARRANGEMENTS[arrangement])
    functions = []  # The library calls them until the end.
    if combine == "sum":
        if value_type is not int:
            raise ValueError("values that are int are summed")
        library.MPI_D_Set_combiner(library.MPI_D_Sum_int64)
    elif combine is not None:
        functions.append(_combiner(combine, value))
        library.MPI_D_Set_combiner(functions[-1])
    if partition is not None:
        functions.append(_partitioner(partition, key))
        library.MPI_D_Set_partitioner(functions[-1])
    begun = library.MPI_D_Init(None, None)
    message = library.MPI_D_Error_message().decode()
    outputs, failure = {}, None
    while begun == _SUCCESS and library.MPI_D_Next_task():
        task = Task(library, "O" if library.MPI_D_Comm_bipartite(0) else "A", key, value)
        try:
            if task.side == "O":
                for pair in o(task) or ():
                    task.send(*pair)
            else:
                outputs[task.rank] = a(task)
        except Exception as error:
            failure = failure or error
            library.MPI_D_Fail(f"{type(error).__name__}: {error}".encode())
    if library.MPI_D_Finalize() != _SUCCESS:
        raise JobError(library.MPI_D_Error_message().decode() if begun == _SUCCESS else message) from failure
    return outputs
