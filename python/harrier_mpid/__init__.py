"""Programs in keys and values on the ranks of MPI: O tasks are generators of pairs, A tasks iterate over what they receive.

    def words(task):
        for line in open(files[task.rank]):
            for word in line.split():
                yield word, 1

    def counts(task):
        for word, numbers in task.groups():
            sys.stdout.write(f"{word}\t{sum(numbers)}\n")

    harrier_mpid.run(words, counts, key=str, value=int, combine="sum", o_tasks=len(files))

`Rounds` goes round over what stays in memory (mpidrun -mode ITER); `stream` counts in windows of inputs that need not end (-mode STREAM).
It stands on the C library (libmpid.so), which a wheel has in it; HARRIER_MPID_LIBRARY names another one, and without either the one of
the system is used. A program is started alone, or as ranks: mpirun -n 4 python3 program.py. All ranks run the same program, which has
one of `run`, `Rounds` and `stream`, once.
"""

import ctypes
import ctypes.util
import glob
import operator
import os
import pickle
import struct
import sys

__all__ = ["run", "Rounds", "stream", "Task", "JobError"]

_SUCCESS, _END, _LATE = 0, 1, 5
_MODES = {"COM": 0, "ITER": 1, "STREAM": 2}
# Pairs of a stream after which windows are looked for, if no time has passed before.
_PIECE_PAIRS = 256
_ARRANGEMENTS = {"plain": 0, "grouped": 1, "sorted": 2}
_COMBINER = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
    ctypes.c_void_p, ctypes.c_size_t,
)
_PARTITIONER = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_COMPARATOR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
# What a partitioner returns that has failed: no task has this number.
_NO_TASK = ctypes.c_size_t(-1).value


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
    library.MPI_D_Set_comparator.argtypes = [_COMPARATOR]
    library.MPI_D_Set_window.argtypes = [ctypes.c_uint64]
    library.MPI_D_Send_at.argtypes = [ctypes.c_uint64, ctypes.c_char_p, size, ctypes.c_char_p, size]
    library.MPI_D_Advance.argtypes = [ctypes.c_uint64]
    library.MPI_D_Keep.argtypes = [ctypes.c_char_p, size, ctypes.c_char_p, size]
    library.MPI_D_Sum.argtypes = [ctypes.POINTER(ctypes.c_double), size]
    library.MPI_D_Round.restype = ctypes.c_uint64
    return library


class _Text:
    encode = staticmethod(str.encode)
    decode = staticmethod(bytes.decode)


class _Bytes:
    @staticmethod
    def encode(data):
        # Of a number, `bytes` would make as many zeros.
        return data if type(data) is bytes else bytes(memoryview(data))

    decode = staticmethod(bytes)


class _OrderedInt:
    """For keys: the order of the bytes is that of the numbers."""

    _form = struct.Struct(">Q")

    @classmethod
    def encode(cls, number):
        number = operator.index(number)
        try:
            return cls._form.pack(number + (1 << 63))
        except (struct.error, OverflowError):
            raise OverflowError(f"the key {number} is out of range: keys that are int are from -2**63 to 2**63 - 1") from None

    @classmethod
    def decode(cls, data):
        return cls._form.unpack(data)[0] - (1 << 63)


class _NativeInt:
    """For values: what the library can add up."""

    _form = struct.Struct("=q")

    @classmethod
    def encode(cls, number):
        number = operator.index(number)
        try:
            return cls._form.pack(number)
        except (struct.error, OverflowError):
            raise OverflowError(f"the value {number} is out of range: values that are int are from -2**63 to 2**63 - 1") from None

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


def _unsigned(number, what):
    """The same number. ctypes would take what it is modulo 2**64."""
    number = operator.index(number)
    if not 0 <= number < 1 << 64:
        raise OverflowError(f"{what} {number} is out of range: it is from 0 to 2**64 - 1")
    return number


def _without_objects(dtype):
    if dtype.hasobject:
        raise TypeError(f"arrays of {dtype} have no bytes of their own but pointers to objects, which mean nothing elsewhere")


_KEYS = {str: _Text, bytes: _Bytes, int: _OrderedInt}
_VALUES = {str: _Text, bytes: _Bytes, int: _NativeInt, float: _Float, object: _Object}


class Task:
    """An O or A task: `rank` is its number, `size` how many of its side there are, `window` the begin and the end of that of an A task
    of a stream."""

    def __init__(self, program, side, window=None):
        self._library, self._check = program.library, program.check
        self._key, self._value, self._keeps = program.key, program.value, program.keeps
        self.side, self.window = side, window
        # Of a stream: how many times `advance` was called, and pairs that were late.
        self._advanced, self.late = 0, 0
        self.rank, self.size = self._number("rank"), self._number("size")

    def _number(self, what):
        number = ctypes.c_int()
        self._check(getattr(self._library, "MPI_D_Comm_" + what)(1 if self.side == "O" else 2, ctypes.byref(number)))
        return number.value

    def reads(self, source):
        """Says what the O task reads from now on, such as a file: errors name it."""
        name = os.fsencode(source) if isinstance(source, (str, bytes, os.PathLike)) else str(source).encode()
        self._check(self._library.MPI_D_Reads(name))

    def at(self, position):
        """Says where in what it reads the O task is, such as a line: errors name it as the place of the record."""
        self._check(self._library.MPI_D_At(_unsigned(position, "the position")))

    def send(self, key, value):
        """Sends one pair from an O task; the same as to yield it."""
        key, value = self._key.encode(key), self._value.encode(value)
        self._check(self._library.MPI_D_Send(key, len(key), value, len(value)))

    def advance(self, time):
        """Says, in an O task of a stream, that it sends nothing more of a time before this: windows that end by then may close."""
        self._advanced += 1
        self._check(self._library.MPI_D_Advance(_unsigned(time, "the time")))

    def send_at(self, time, key, value):
        """Sends one pair of a stream; the same as to yield (time, key, value). Returns whether it was in time: late ones are left out."""
        key, value = self._key.encode(key), self._value.encode(value)
        code = self._library.MPI_D_Send_at(_unsigned(time, "the time"), key, len(key), value, len(value))
        in_time = code != _LATE
        self._check(code if in_time else _SUCCESS)
        self.late += not in_time
        return in_time

    def keep(self, key, value):
        """Keeps a pair of an A task for the tasks of its number in later rounds, instead of what was kept before."""
        key, value = self._keeps[0].encode(key), self._keeps[1].encode(value)
        self._check(self._library.MPI_D_Keep(key, len(key), value, len(value)))

    def kept(self):
        """The pairs that were kept for the task before it began, in their order. They are gone through once."""
        return self._each(self._library.MPI_D_Kept, *self._keeps)

    def send_arrays(self, keys, values):
        """Sends a pair for each element of two contiguous NumPy arrays, whose memory is read in place.

        The pairs are the elements' bytes in the machine's order: receive them with `arrays`, and with the same types. Objects have none
        that others could read: TypeError."""
        for array in (keys, values):
            _without_objects(array.dtype)
            if not array.flags.c_contiguous or array.ndim != 1:
                raise ValueError("arrays of one dimension, without gaps, are sent")
        if len(keys) != len(values):
            raise ValueError("there are as many keys as values")
        sent = self._library.MPI_D_Send_many(
            len(keys), keys.ctypes.data, keys.itemsize, values.ctypes.data, values.itemsize
        )
        self._check(sent)

    def pairs(self):
        """The pairs of an A task, in the order of the arrangement."""
        return self._each(self._library.MPI_D_Recv, self._key, self._value)

    def _each(self, receive, key_codec, value_codec):
        key, value = ctypes.c_void_p(), ctypes.c_void_p()
        key_bytes, value_bytes = ctypes.c_size_t(), ctypes.c_size_t()
        places = [ctypes.byref(place) for place in (key, key_bytes, value, value_bytes)]
        text = ctypes.string_at
        while True:
            code = receive(*places)
            self._check(_SUCCESS if code == _END else code)
            if code == _END:
                return
            yield key_codec.decode(text(key, key_bytes.value)), value_codec.decode(text(value, value_bytes.value))

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

        if length < 1:
            raise ValueError("length is at least 1")
        keys, values = numpy.empty(length, key_type), numpy.empty(length, value_type)
        for array in (keys, values):
            _without_objects(array.dtype)
        received = ctypes.c_size_t()
        while True:
            code = self._library.MPI_D_Recv_many(
                length, keys.ctypes.data, keys.itemsize, values.ctypes.data, values.itemsize, ctypes.byref(received)
            )
            self._check(code)
            if received.value == 0:
                return
            yield keys[: received.value], values[: received.value]


def _combined(combine, value):
    def combined(_key, _key_bytes, held, held_bytes, room, other, other_bytes):
        left = value.decode(ctypes.string_at(held, held_bytes))
        data = value.encode(combine(left, value.decode(ctypes.string_at(other, other_bytes))))
        if len(data) > room:
            raise ValueError(f"what was combined of two values has {len(data)} bytes, and there is room for {room}")
        ctypes.memmove(held, data, len(data))
        return len(data)

    return combined


def _chosen(partition, key):
    def chosen(data, length, tasks):
        task = operator.index(partition(key.decode(ctypes.string_at(data, length)), tasks))
        if not 0 <= task < tasks:
            raise ValueError(f"the partitioner chose A task {task} of {tasks}")
        return task

    return chosen


def _compared(compare, key):
    def compared(left, left_bytes, right, right_bytes):
        left, right = key.decode(ctypes.string_at(left, left_bytes)), key.decode(ctypes.string_at(right, right_bytes))
        order = operator.index(compare(left, right))
        return (order > 0) - (order < 0)

    return compared


class _Program:
    """What is common to all modes: what the library is told before it begins, the functions that it calls, and the loop over tasks.

    Nothing can be raised through the library. What a function raises that it calls, on whatever thread, is `caught`; each call of
    the library, and each task, looks for it and raises it in the program. The library itself hears that the job has failed by what
    the function returns, where that can say so, else with the task in which it is found (`untold` until then)."""

    def __init__(self, mode, o_tasks, a_tasks):
        self.library = _load()
        for side, tasks in (("O", o_tasks), ("A", a_tasks)):
            if tasks is not None:
                told = os.environ.setdefault("HARRIER_MPID_" + side, str(tasks))
                if told != str(tasks):
                    raise ValueError(f"the program has {tasks} {side} tasks, and was told {told} (mpidrun -{side})")
        told = os.environ.get("HARRIER_MPID_MODE") or mode
        if told in _MODES and told != mode:
            raise ValueError(f"the program is one of mode {mode}, and was started in mode {told} (mpidrun -mode)")
        self.library.MPI_D_Set_mode(_MODES[mode])
        self.functions = []  # The library calls them until the end.
        self.keeps = (None, None)
        self.begun = self.failure = self.message = None
        self.caught, self.untold = None, False
        self.calls, self.hook = [], None

    def check(self, code):
        """Raises what has come of a call of the library."""
        if self.caught is not None:
            raise self.caught
        if code != _SUCCESS:
            raise JobError(self.library.MPI_D_Error_message().decode())

    def called(self, kind, work, failed, tells):
        """A function for the library. It returns `failed` when `work` raises, which `tells` the library that the job has failed or not.
        `work` None: no function."""
        if work is None:
            function = ctypes.cast(None, kind)
        else:

            def call(*arguments):
                try:
                    return work(*arguments)
                except BaseException as error:
                    self.catch(error, tells)
                    return failed

            self.calls.append(call)
            function = kind(call)
        self.functions.append(function)
        return function

    def catch(self, error, told):
        self.untold = self.untold or not told
        if self.caught is None:
            self.caught = error

    def watch(self):
        """Catches what ctypes alone hears of: an interrupt that comes before a function's `try` has begun, or after its end."""
        before = sys.unraisablehook

        def is_of(call, unraisable):
            # Some versions of Python say whose error it is, and others only where it was.
            trace = unraisable.exc_traceback
            return unraisable.object is call or trace is not None and trace.tb_frame.f_code is call.__code__

        def hook(unraisable):
            if any(is_of(call, unraisable) for call in self.calls):
                self.catch(unraisable.exc_value or unraisable.exc_type(), False)
            else:
                before(unraisable)

        self.hook, sys.unraisablehook = (hook, before), hook

    def shape(self, key, value, arrangement, combine, partition, compare):
        library = self.library
        self.key, self.value = _KEYS[key], _VALUES[value]
        library.MPI_D_Set_arrangement(_ARRANGEMENTS[arrangement])
        if combine == "sum":
            if value is not int:
                raise ValueError("values that are int are summed")
            library.MPI_D_Set_combiner(library.MPI_D_Sum_int64)
        else:
            combined = _combined(combine, self.value) if combine else None
            library.MPI_D_Set_combiner(self.called(_COMBINER, combined, -1, True))
        chosen = _chosen(partition, self.key) if partition else None
        library.MPI_D_Set_partitioner(self.called(_PARTITIONER, chosen, _NO_TASK, True))
        compared = _compared(compare, self.key) if compare else None
        library.MPI_D_Set_comparator(self.called(_COMPARATOR, compared, 0, False))

    def begin(self):
        """Returns whether it has begun; `end` then says why not."""
        self.watch()
        self.begun = self.library.MPI_D_Init(None, None) == _SUCCESS
        self.message = self.library.MPI_D_Error_message().decode()
        return self.begun

    def tasks(self, work):
        """Calls `work` for each task of this rank: of the round, if there are several."""
        library = self.library
        while self.begun and library.MPI_D_Next_task():
            side, window = "O" if library.MPI_D_Comm_bipartite(0) else "A", None
            begin, end = ctypes.c_uint64(), ctypes.c_uint64()
            if side == "A" and library.MPI_D_Window(ctypes.byref(begin), ctypes.byref(end)) == _SUCCESS:
                window = begin.value, end.value
            try:
                self.check(_SUCCESS)
                work(Task(self, side, window))
                self.check(_SUCCESS)
            except BaseException as error:
                if self.failure is None:
                    self.failure = error
                if library.MPI_D_Fail(f"{type(error).__name__}: {error}".encode(errors="replace")) == _SUCCESS:
                    self.untold = False

    def interrupted(self):
        """Raises what is to end the program, and not only the job."""
        for error in (self.caught, self.failure):
            if error is not None and (self.untold or not isinstance(error, Exception)):
                raise error

    def end(self):
        if self.hook and sys.unraisablehook is self.hook[0]:
            sys.unraisablehook = self.hook[1]
        if self.untold:
            # After the last task: there is no other way to fail the job than that the others lose this rank.
            self.interrupted()
        failed = self.library.MPI_D_Finalize() != _SUCCESS
        self.interrupted()
        if failed:
            message = self.library.MPI_D_Error_message().decode() if self.begun else self.message
            raise JobError(message) from self.caught if self.caught is not None else self.failure


def run(o, a, key=str, value=object, arrangement="grouped", combine=None, partition=None, o_tasks=None, a_tasks=None, compare=None):
    """Runs a job, and leaves the ranks. Collective.

    `o(task)` is called for each O task and yields pairs, or sends them; `a(task)` for each A task, on the rank that has its pairs.
    `key` is str, bytes or int; `value` one of those, float, or object, which is pickled; an int is one of 64 bits, and another one is an
    OverflowError. `combine` is "sum" for values that are int, or a function of two values; `partition` a function of a key and of how many
    A tasks there are that returns the number of one. `compare` is the order of keys where `arrangement` is "sorted": a function of two keys
    that returns an int below 0, 0 or above 0 as the first is before, like or after the second. The library calls these three on several
    threads. `o_tasks` and `a_tasks`: so many and no others; without them, as the command line says (mpidrun -O and -A). Returns what the A
    tasks of this rank returned, by their number.

    Raises JobError, whose cause is what a function of the program has raised on this rank; that itself, when all ranks know that the job has
    failed, if it is no Exception, such as KeyboardInterrupt; ValueError if the command line says another number of tasks than the program,
    or another mode (mpidrun -mode)."""
    program, outputs = _Program("COM", o_tasks, a_tasks), {}
    program.shape(key, value, arrangement, combine, partition, compare)
    program.begin()
    program.tasks(_batch(o, a, outputs))
    program.end()
    return outputs


def _batch(o, a, outputs):
    def work(task):
        if task.side == "O":
            for pair in o(task) or ():
                task.send(*pair)
        else:
            outputs[task.rank] = a(task)

    return work


class Rounds:
    """Rounds over what stays in memory; leaves the ranks at the end of its `with`. Collective, as are its functions.

        with harrier_mpid.Rounds(kept=(int, float)) as rounds:
            rounds.run(read, keep, key=int, value=float)
            change = 1.0
            while change > 0.001:
                rounds.run(share, add, key=int, value=float)
                change = rounds.sum(moved)[0]

    An A task keeps pairs with `task.keep`, and from the next round on the O and the A task of its number, on the same rank, have them from
    `task.kept()`; what a task keeps takes the place of what was kept, and that of one which keeps nothing stays. `kept` are the types of
    their keys and values, as of `run`. Rounds after the first have as many O tasks as A tasks. What decides whether there is another
    round must be the same on all ranks, as what `sum` returns is.

    Raises JobError at the end of a `with` that has failed, or when the ranks do not do the same; ValueError as `run`."""

    def __init__(self, kept=(str, object), o_tasks=None, a_tasks=None):
        self._program = _Program("ITER", o_tasks, a_tasks)
        self._program.keeps = _KEYS[kept[0]], _VALUES[kept[1]]
        self._failed = False

    def __enter__(self):
        return self

    def run(self, o, a, key=str, value=object, arrangement="grouped", combine=None, partition=None, compare=None):
        """A round; arguments and result as of the function `run`."""
        program, outputs = self._program, {}
        program.shape(key, value, arrangement, combine, partition, compare)
        begun = program.begin() if program.begun is None else program.library.MPI_D_Next_round()
        self._goes_on(begun)
        program.tasks(_batch(o, a, outputs))
        program.interrupted()
        return outputs

    def sum(self, *numbers):
        """The sums of these numbers over all ranks, the same on every rank: a list of as many. Also tells whether the round has failed."""
        sums = (ctypes.c_double * len(numbers))(*numbers)
        self._goes_on(self._program.library.MPI_D_Sum(sums, len(numbers)) == _SUCCESS)
        return list(sums)

    def _goes_on(self, does):
        if not does:
            # The program is left; __exit__ says with what.
            self._failed = True
            raise JobError(self._program.library.MPI_D_Error_message().decode())

    def __exit__(self, kind, error, _):
        if self._program.begun is None:
            return
        # An error of the program alone cannot be told to the other ranks between rounds: they find that this one has ended.
        try:
            self._program.end()
        except JobError as failed:
            if error is None or self._failed:
                raise failed from self._program.failure


def stream(
    o, a, width, key=str, value=object, arrangement="grouped", combine=None, partition=None, o_tasks=None, a_tasks=None, compare=None
):
    """Runs a job on inputs that need not end, in windows of times that follow one another and are so wide; leaves the ranks when all inputs
    have ended. Collective. There are at most as many O tasks as ranks, and as many if nobody says.

    `o(task)` is a generator of (time, key, value), which says with `task.advance(time)` how far it has come; it yields None when it has
    nothing for now, so that this rank's windows are not held up. `a(task)` is called for each window of each A task, as soon as all O
    tasks are past it; `task.window` is its begin and its end. Other arguments as of `run`. Returns how many pairs of this rank were late.

    Raises as `run`."""
    program, inputs, late = _Program("STREAM", o_tasks, a_tasks), {}, 0
    program.shape(key, value, arrangement, combine, partition, compare)
    program.library.MPI_D_Set_window(_unsigned(width, "the width"))

    def work(task):
        nonlocal late
        if task.side == "A":
            a(task)
            return
        if task.rank not in inputs:
            inputs[task.rank] = task, iter(o(task) or ())
        task, pairs = inputs[task.rank]
        advanced = task._advanced
        for _ in range(_PIECE_PAIRS):
            pair = next(pairs, program)
            if pair is program:
                program.library.MPI_D_End_input()
                late += task.late
                return
            if pair is None:
                return
            task.send_at(*pair)
            if task._advanced > advanced:
                return

    program.begin()
    program.tasks(work)
    program.end()
    return late
