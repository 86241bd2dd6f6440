r"""Programs in keys and values on the ranks of MPI: O tasks are generators of pairs, A tasks iterate over what they receive.

    def words(task):
        for line in task.lines(files):
            for word in line.split():
                yield word, 1

    def counts(task):
        for word, numbers in task.groups():
            sys.stdout.write(f"{word}\t{sum(numbers)}\n")

    harrier_mpid.run(words, counts, key=str, value=int, combine="sum")

`Rounds` goes round over what stays in memory (mpidrun -mode ITER); `stream` counts in windows of inputs that need not end (-mode STREAM).
It stands on the C library (libmpid.so), which a wheel has in it; HARRIER_MPID_LIBRARY names another one, and without either the one of
the system is used. A program is started alone, or as ranks: mpirun -n 4 python3 program.py. All ranks run the same program, which has
one of `run`, `Rounds` and `stream`, once: a process joins its ranks once. Alone it may have several, one after the other.
"""

import ctypes
import ctypes.util
import glob
import inspect
import operator
import os
import pickle
import struct
import sys
import threading

__all__ = ["run", "Rounds", "stream", "Task", "JobError"]

_SUCCESS, _END, _ERR_RANKS, _LATE = 0, 1, 4, 5
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
    library.MPI_D_Splits.argtypes = [ctypes.POINTER(ctypes.c_char_p), size, ctypes.c_uint64]
    library.MPI_D_Part.argtypes = [ctypes.c_uint64, ctypes.c_uint64, pointer, pointer]
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
    type = str
    encode = staticmethod(str.encode)
    decode = staticmethod(bytes.decode)


class _Bytes:
    type = bytes

    @staticmethod
    def encode(data):
        # Of a number, `bytes` would make as many zeros.
        return data if type(data) is bytes else bytes(memoryview(data))

    decode = staticmethod(bytes)


class _OrderedInt:
    """For keys: the order of the bytes is that of the numbers."""

    type = int
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

    type = int
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
    type = float
    _form = struct.Struct("=d")
    encode = _form.pack

    @classmethod
    def decode(cls, data):
        return cls._form.unpack(data)[0]


class _Object:
    type = object
    encode = staticmethod(pickle.dumps)
    decode = staticmethod(pickle.loads)


def _unsigned(number, what):
    """The same number. ctypes would take what it is modulo 2**64."""
    number = operator.index(number)
    if not 0 <= number < 1 << 64:
        raise OverflowError(f"{what} {number} is out of range: it is from 0 to 2**64 - 1")
    return number


_KEYS = {str: _Text, bytes: _Bytes, int: _OrderedInt}
_VALUES = {str: _Text, bytes: _Bytes, int: _NativeInt, float: _Float, object: _Object}


def _known(known, given, what, error):
    try:
        return known[given]
    except (KeyError, TypeError):
        *names, last = [each.__name__ if isinstance(each, type) else repr(each) for each in known]
        told = given.__name__ if isinstance(given, type) else _short(given)
        raise error(f"{what} is {told}, and can be {', '.join(names)} or {last}") from None


def _short(thing):
    text = repr(thing)
    return text if len(text) <= 80 else text[:79] + "…"


def _name(function):
    return getattr(function, "__qualname__", None) or _short(function)


def _encoded(what, kinds, codec, thing):
    """The bytes of a key or a value, of which an error says what it is."""
    try:
        return codec.encode(thing)
    except (TypeError, struct.error) as error:
        if codec is _Object:
            raise
        told = f"{what} {_short(thing)} is of type {type(thing).__name__}, and {kinds} of this job are {codec.type.__name__}"
        raise TypeError(told) from error


def _parts(function, pair, wanted):
    """What an O function yields, or returns an iterable of: so many parts."""
    if isinstance(pair, (str, bytes)) or not hasattr(pair, "__len__") or len(pair) != wanted:
        parts = "(key, value)" if wanted == 2 else "(time, key, value) or None"
        raise TypeError(f"the O function {_name(function)} yields {_short(pair)}, and not {parts}")
    return pair


def _pairs(function, task):
    """What an O function yields."""
    pairs = function(task)
    if pairs is None:
        return iter(())
    try:
        return iter(pairs)
    except TypeError as error:
        _close(pairs)
        told = f"the O function {_name(function)} returns {_short(pairs)}: it yields pairs, or returns an iterable of them, or None"
        raise TypeError(told) from error


def _close(result):
    # A coroutine that nobody waits for says so on stderr.
    if inspect.iscoroutine(result):
        result.close()


_LAZY = "its work would not be done: an A function goes through what it receives itself, and yields nothing"


def _eager(function, task):
    """What an A function returns, when it has done its work."""
    result = function(task)
    if inspect.isgenerator(result) or inspect.iscoroutine(result) or inspect.isasyncgen(result):
        _close(result)
        raise TypeError(f"the A function {_name(function)} returns a {type(result).__name__}, and {_LAZY}")
    return result


class Task:
    """An O or A task: `rank` is its number, `size` how many of its side there are, `window` the begin and the end of that of an A task
    of a stream."""

    def __init__(self, program, side, window=None):
        self._library, self._check = program.library, program.check
        self._key, self._value, self._keeps = program.key, program.value, program.keeps
        self._in_stream = program.mode == "STREAM"
        # Of an A task: the key of the pair that it has come to; None before the first pair, and after the last one.
        self._key_at = [None]
        self.side, self.window = side, window
        # Of a stream: how many times `advance` was called, and pairs that were late.
        self._advanced, self.late = 0, 0
        # How many shares of files it has asked for.
        self._shares = 0
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

    def splits(self, paths, split_bytes=0):
        """The share of an O task of files, and of all files in folders: of each split the name of the file, and its bytes from the second to before the
        third. Files are cut into splits of about `split_bytes` bytes (0: of 16 MiB, or of less where tasks would have nothing), which are dealt to the tasks
        in turn. All tasks together have each byte once. A named pipe is one split, from 0 to 2**64 - 1. Errors name the file."""
        return self._splits(self._share(paths, split_bytes))

    def lines(self, paths, split_bytes=0, encoding="utf-8"):
        """The lines that begin in the splits of an O task, as of `splits`, without their ends; bytes where `encoding` is None. Errors name the file, and the
        byte at which the line begins."""
        return self._lines(self._share(paths, split_bytes), encoding)

    def part(self, begin, end):
        """The part of an O task of a range of bytes, rows or whatever is counted: the begin, and what it ends before."""
        own = ctypes.c_uint64(), ctypes.c_uint64()
        begin, end = _unsigned(begin, "the begin"), _unsigned(end, "the end")
        self._check(self._library.MPI_D_Part(begin, end, *map(ctypes.byref, own)))
        return own[0].value, own[1].value

    def _share(self, paths, split_bytes):
        if isinstance(paths, (str, bytes, os.PathLike)):
            paths = [paths]
        names = [os.fsencode(path) for path in paths]
        self._check(self._library.MPI_D_Splits((ctypes.c_char_p * len(names))(*names), len(names), _unsigned(split_bytes, "split_bytes")))
        # Of an O task that asks for a share twice, the first one has come to its end.
        self._shares += 1
        return self._shares

    def _come(self, share, call, *places):
        """Whether the library has come to something else of this share."""
        if share != self._shares:
            return False
        code = call(*map(ctypes.byref, places))
        self._check(_SUCCESS if code == _END else code)
        return code == _SUCCESS

    def _splits(self, share):
        path, begin, end = ctypes.c_char_p(), ctypes.c_uint64(), ctypes.c_uint64()
        while self._come(share, self._library.MPI_D_Next_split, path, begin, end):
            yield os.fsdecode(path.value), begin.value, end.value

    def _lines(self, share, encoding):
        line, length, at, text = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64(), ctypes.string_at
        for _ in self._splits(share):
            while self._come(share, self._library.MPI_D_Next_line, line, length, at):
                data = text(line, length.value)
                yield data if encoding is None else data.decode(encoding)

    def send(self, key, value):
        """Sends one pair from an O task; the same as to yield it."""
        if self._in_stream:
            raise TypeError("a pair of a stream has a time: send_at")
        key, value = _encoded("the key", "keys", self._key, key), _encoded("the value", "values", self._value, value)
        self._check(self._library.MPI_D_Send(key, len(key), value, len(value)))

    def advance(self, time):
        """Says, in an O task of a stream, that it sends nothing more of a time before this: windows that end by then may close."""
        self._advanced += 1
        self._check(self._library.MPI_D_Advance(_unsigned(time, "the time")))

    def send_at(self, time, key, value):
        """Sends one pair of a stream; the same as to yield (time, key, value). Returns whether it was in time: late ones are left out."""
        key, value = _encoded("the key", "keys", self._key, key), _encoded("the value", "values", self._value, value)
        code = self._library.MPI_D_Send_at(_unsigned(time, "the time"), key, len(key), value, len(value))
        in_time = code != _LATE
        self._check(code if in_time else _SUCCESS)
        self.late += not in_time
        return in_time

    def keep(self, key, value):
        """Keeps a pair of an A task for the tasks of its number in later rounds, instead of what was kept before."""
        self._in_rounds("keep")
        key = _encoded("the kept key", "kept keys", self._keeps[0], key)
        value = _encoded("the kept value", "kept values", self._keeps[1], value)
        self._check(self._library.MPI_D_Keep(key, len(key), value, len(value)))

    def kept(self):
        """The pairs that were kept for the task before it began, in their order. They are gone through once."""
        self._in_rounds("kept")
        return self._each(self._library.MPI_D_Kept, *self._keeps, [None])

    def _in_rounds(self, what):
        if self._keeps is None:
            raise TypeError(f"{what} is for tasks of Rounds")

    def send_arrays(self, keys, values):
        """Sends a pair for each element of two NumPy arrays of one dimension without gaps; the same as to yield them, one after the other.

        Where `key` is bytes, and `value` is bytes, int (int64) or float (float64), their memory is read in place. Other integers, and
        floats of less than 64 bits, are converted, and so are keys where `key` is int, whose bytes have the order of the numbers: 65536
        at a time. Where they are bytes, elements of any type are sent as they lie in memory, and so is their order.

        TypeError: elements that are none of `key` or `value`; texts; objects, whose pointers mean nothing elsewhere; a masked array; keys
        or values of another type, such as str. OverflowError: an int that 64 bits do not hold. ValueError: another shape."""
        if self._in_stream:
            raise TypeError("a pair of a stream has a time: arrays have none, and are not sent by streams")
        from ._arrays import pieces

        for key_piece, value_piece in pieces(keys, self._key.type, values, self._value.type):
            sent = self._library.MPI_D_Send_many(
                len(key_piece), key_piece.ctypes.data, key_piece.itemsize, value_piece.ctypes.data, value_piece.itemsize
            )
            self._check(sent)

    def pairs(self):
        """The pairs of an A task, in the order of the arrangement."""
        return self._each(self._library.MPI_D_Recv, self._key, self._value, self._key_at)

    def _each(self, receive, key_codec, value_codec, key_at):
        key, value = ctypes.c_void_p(), ctypes.c_void_p()
        key_bytes, value_bytes = ctypes.c_size_t(), ctypes.c_size_t()
        places = [ctypes.byref(place) for place in (key, key_bytes, value, value_bytes)]
        text = ctypes.string_at
        while True:
            code = receive(*places)
            self._check(_SUCCESS if code == _END else code)
            if code == _END:
                key_at[0] = None
                return
            key_at[0] = got = key_codec.decode(text(key, key_bytes.value))
            yield got, value_codec.decode(text(value, value_bytes.value))

    def groups(self):
        """The keys of an A task, each with an iterator over its values, to be read before the next key."""
        pairs = self.pairs()
        ahead = next(pairs, None)

        def values(key):
            nonlocal ahead
            while ahead is not None and ahead[0] == key:
                value = ahead[1]
                ahead = next(pairs, None)
                self._key_at[0] = key
                yield value

        while ahead is not None:
            key = self._key_at[0] = ahead[0]
            group = values(key)
            yield key, group
            for _ in group:
                pass
        self._key_at[0] = None

    def arrays(self, key_type, value_type, length=65536):
        """The pairs of an A task as NumPy arrays of up to `length` elements of these types, which the library writes into.

        Each may be used again for the next: copy what is to stay. Types as of `send_arrays`: integers where keys or values are int, floats
        where values are float, and any without objects or texts where they are bytes. What int64 and float64 do not have in common with
        them is an OverflowError, or rounded."""
        if operator.index(length) < 1:
            raise ValueError("length is at least 1")
        from ._arrays import Receiver

        buffers = Receiver(self._key.type, key_type, self._value.type, value_type, length)
        keys, values, received = buffers.keys, buffers.values, ctypes.c_size_t()
        while True:
            code = self._library.MPI_D_Recv_many(
                length, keys.ctypes.data, keys.itemsize, values.ctypes.data, values.itemsize, ctypes.byref(received)
            )
            self._check(code)
            if received.value == 0:
                return
            yield buffers.received(received.value)


def _decoded(codec, data, length):
    return codec.decode(ctypes.string_at(data, length))


def _combined(combine, value):
    def combined(_key, _key_bytes, held, held_bytes, room, other, other_bytes):
        made = combine(_decoded(value, held, held_bytes), _decoded(value, other, other_bytes))
        data = _encoded("the combined value", "values", value, made)
        if len(data) > room:
            raise ValueError(f"what was combined of two values has {len(data)} bytes, and there is room for {room}")
        ctypes.memmove(held, data, len(data))
        return len(data)

    return combined


def _chosen(partition, key):
    def chosen(data, length, tasks):
        told = partition(_decoded(key, data, length), tasks)
        try:
            task = operator.index(told)
        except TypeError:
            raise TypeError(f"partition returns {_short(told)}, and not the number of an A task, which is an int") from None
        if not 0 <= task < tasks:
            raise ValueError(f"partition returns {task}, and there are the A tasks 0 to {tasks - 1}")
        return task

    return chosen


def _compared(compare, key):
    def compared(left, left_bytes, right, right_bytes):
        order = compare(_decoded(key, left, left_bytes), _decoded(key, right, right_bytes))
        # True would be 1, as of the first key after the second, and no key would ever be before another one.
        if type(order) is bool or not hasattr(order, "__index__"):
            told = "an int below 0, 0 or above 0 as the first key is before, like or after the second"
            raise TypeError(f"compare returns {_short(order)}, and not {told}")
        order = operator.index(order)
        return (order > 0) - (order < 0)

    return compared


class _Program:
    """What is common to all modes: what the library is told before it begins, the functions that it calls, and the loop over tasks.

    Nothing can be raised through the library. What a function raises that it calls, on whatever thread, is `caught`, and told to the
    library, for the other ranks; each call of the library, and each task, looks for it and raises it in the program. What comes between
    the library and the function is told with the task in which it is found (`untold` until then)."""

    # That of this process: from its beginning to its end. Whether there was one.
    current, was_one = None, False

    def __init__(self, mode, o_tasks, a_tasks):
        self.refuse_another()
        self.library, self.mode, self.thread = _load(), mode, None
        self.numbers = {}
        for side, tasks in (("O", o_tasks), ("A", a_tasks)):
            if tasks is not None:
                if not hasattr(tasks, "__index__"):
                    raise TypeError(f"{side.lower()}_tasks is {_short(tasks)}: numbers of tasks are int")
                tasks = operator.index(tasks)
                if tasks < 1:
                    raise ValueError(f"{side.lower()}_tasks is {tasks}: it is at least 1")
                told = os.environ.get("HARRIER_MPID_" + side, str(tasks))
                # An empty one the library refuses.
                if told not in ("", str(tasks)):
                    raise ValueError(f"the program has {tasks} {side} tasks, and was told {told} (mpidrun -{side})")
                self.numbers["HARRIER_MPID_" + side] = told
        told = os.environ.get("HARRIER_MPID_MODE") or mode
        if told in _MODES and told != mode:
            raise ValueError(f"the program is one of mode {mode}, and was started in mode {told} (mpidrun -mode)")
        self.library.MPI_D_Set_mode(_MODES[mode])
        self.functions = []  # The library calls them until the end.
        self.keeps, self.in_task = None, False
        self.begun = self.failure = self.message = None
        self.caught, self.caught_message, self.untold = None, None, False
        self.calls, self.hook = [], None

    @staticmethod
    def refuse_another():
        if _Program.current is not None:
            told = "run, Rounds and stream are called one after the other, and not by an O or A function"
            raise RuntimeError(f"a job of this process has not ended: {told}")

    def check(self, code):
        """Raises what has come of a call of the library."""
        if self.caught is not None:
            raise self.caught
        if code != _SUCCESS:
            error = JobError(self.library.MPI_D_Error_message().decode())
            if threading.get_ident() != self.thread:
                # Nobody hears what is raised in a thread of the program's own: the task raises it, too.
                self.catch(error, False)
            raise error

    def called(self, kind, name, work, failed, keys=((0, 1),)):
        """A function for the library. It returns `failed` when `work` raises; the library is told, so that the job has failed, and all ranks
        hear why. `keys`: which arguments are the keys that it is called for. `work` None: no function."""
        if work is None:
            function = ctypes.cast(None, kind)
        else:

            def call(*arguments):
                try:
                    return work(*arguments)
                except BaseException as error:
                    shown = " and ".join(self.shown(arguments[data], arguments[length]) for data, length in keys)
                    message = f"{_told(error)} ({name}, {'keys' if len(keys) > 1 else 'key'} {shown})"
                    self.catch(error, False, message)
                    self.library.MPI_D_Fail(message.encode(errors="replace"))
                    self.catch(error, True)
                    return failed

            self.calls.append(call)
            function = kind(call)
        self.functions.append(function)
        return function

    def shown(self, data, length):
        """A key for an error."""
        data = ctypes.string_at(data, length)
        try:
            return _short(self.key.decode(data))
        except Exception:
            return _short(data)

    def catch(self, error, told, message=None):
        if self.caught is None:
            # In this order: another thread looks for it.
            self.caught_message, self.caught = message, error
        elif self.caught is error and self.caught_message is None:
            self.caught_message = message
        if self.caught is error:
            self.untold = not told

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

    def shape(self, o, a, key, value, arrangement, combine, partition, compare):
        library = self.library
        if isinstance(combine, str) and combine != "sum":
            raise ValueError(f'combine is {_short(combine)}, and can be "sum" or a function of two values')
        functions = {"o": o, "a": a, "combine": combine, "partition": partition, "compare": compare}
        for what, function in functions.items():
            optional = {"combine": (None, "sum"), "partition": (None,), "compare": (None,)}.get(what, ())
            if not callable(function) and function not in optional:
                raise TypeError(f"{what} is {_short(function)}, and is to be a function")
        if inspect.isgeneratorfunction(a) or inspect.iscoroutinefunction(a) or inspect.isasyncgenfunction(a):
            raise TypeError(f"the A function {_name(a)} has a yield or is async, and {_LAZY}")
        self.key, self.value = _known(_KEYS, key, "key", TypeError), _known(_VALUES, value, "value", TypeError)
        library.MPI_D_Set_arrangement(_known(_ARRANGEMENTS, arrangement, "arrangement", ValueError))
        if combine == "sum":
            sums = {int: library.MPI_D_Sum_int64, float: library.MPI_D_Sum_double}
            if value not in sums:
                raise ValueError(f'combine="sum" adds up values that are int or float, and value is {value.__name__}')
            library.MPI_D_Set_combiner(sums[value])
        else:
            combined = _combined(combine, self.value) if combine is not None else None
            library.MPI_D_Set_combiner(self.called(_COMBINER, "combine", combined, -1))
        chosen = _chosen(partition, self.key) if partition is not None else None
        library.MPI_D_Set_partitioner(self.called(_PARTITIONER, "partition", chosen, _NO_TASK))
        compared = _compared(compare, self.key) if compare is not None else None
        library.MPI_D_Set_comparator(self.called(_COMPARATOR, "compare", compared, 0, ((0, 1), (2, 3))))

    def begin(self):
        """Returns whether it has begun; `end` then says why not."""
        self.refuse_another()
        self.watch()
        before = {name: os.environ.get(name) for name in self.numbers}
        # The library reads them when it begins. A program that the process has later may have others.
        os.environ.update(self.numbers)
        _Program.current = self
        self.thread = threading.get_ident()
        try:
            code = self.library.MPI_D_Init(None, None)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        self.begun, self.message = code == _SUCCESS, self.library.MPI_D_Error_message().decode()
        if code == _ERR_RANKS and _Program.was_one:
            self.message += "; this process has had a job: it joins its ranks once, and only a program that runs alone has several jobs"
        _Program.was_one = True
        return self.begun

    def tasks(self, work):
        """Calls `work` for each task of this rank: of the round, if there are several."""
        library = self.library
        while self.begun and library.MPI_D_Next_task():
            side, window = "O" if library.MPI_D_Comm_bipartite(0) else "A", None
            begin, end = ctypes.c_uint64(), ctypes.c_uint64()
            if side == "A" and library.MPI_D_Window(ctypes.byref(begin), ctypes.byref(end)) == _SUCCESS:
                window = begin.value, end.value
            task = None
            try:
                self.check(_SUCCESS)
                task, self.in_task = Task(self, side, window), True
                work(task)
                self.check(_SUCCESS)
            except BaseException as error:
                if self.failure is None:
                    self.failure = error
                message = _told(error)
                if error is self.caught:
                    message = self.caught_message or message
                elif task is not None and task._key_at[0] is not None:
                    message += f" (key {_short(task._key_at[0])})"
                if library.MPI_D_Fail(message.encode(errors="replace")) == _SUCCESS:
                    self.untold = False
            finally:
                self.in_task = False

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
        _Program.current = None
        self.interrupted()
        if failed:
            message = self.library.MPI_D_Error_message().decode() if self.begun else self.message
            raise JobError(message) from self.caught if self.caught is not None else self.failure


def _told(error):
    """What other ranks are told of what was raised."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def run(o, a, key=str, value=object, arrangement="grouped", combine=None, partition=None, o_tasks=None, a_tasks=None, compare=None):
    """Runs a job, and leaves the ranks. Collective.

    `o(task)` is called for each O task and yields pairs, returns an iterable of them, or sends them; `a(task)` for each A task, on the rank
    that has its pairs: it yields nothing. `key` is str, bytes or int; `value` one of those, float, or object, which is pickled; an int is
    one of 64 bits, and another one is an OverflowError. `arrangement` is "grouped", "sorted" or "plain". `combine` is "sum" for values that
    are int or float (on the order of whose pairs the last digits of a sum depend), or a function of two values; `partition` a function of a
    key and of how many A tasks there are that returns the number of one. `compare` is the order of keys where `arrangement` is "sorted": a
    function of two keys that returns an int below 0, 0 or above 0 as the first is before, like or after the second, and no bool. The
    library calls these three on several threads. `o_tasks` and `a_tasks`: so many and no others; without them, as the command line says
    (mpidrun -O and -A). Returns what the A tasks of this rank returned, by their number.

    Raises JobError, the same on every rank, whose cause is what a function of the program has raised on this rank; that itself, when all
    ranks know that the job has failed, if it is no Exception, such as KeyboardInterrupt. Before the job begins: ValueError or TypeError for
    arguments that cannot be, or if the command line says another number of tasks than the program, or another mode (mpidrun -mode);
    RuntimeError if a job of this process has not ended."""
    program, outputs = _Program("COM", o_tasks, a_tasks), {}
    program.shape(o, a, key, value, arrangement, combine, partition, compare)
    program.begin()
    program.tasks(_batch(o, a, outputs))
    program.end()
    return outputs


def _batch(o, a, outputs):
    def work(task):
        if task.side == "O":
            for pair in _pairs(o, task):
                task.send(*(pair if type(pair) is tuple and len(pair) == 2 else _parts(o, pair, 2)))
        else:
            outputs[task.rank] = _eager(a, task)

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
        if not isinstance(kept, (tuple, list)) or len(kept) != 2:
            raise TypeError(f"kept is {_short(kept)}, and not (key, value) of types")
        self._program.keeps = _known(_KEYS, kept[0], "the key of kept", TypeError), _known(_VALUES, kept[1], "the value of kept", TypeError)
        self._failed = False

    def __enter__(self):
        return self

    def run(self, o, a, key=str, value=object, arrangement="grouped", combine=None, partition=None, compare=None):
        """A round; arguments and result as of the function `run`."""
        program, outputs = self._program, {}
        self._between_tasks("run")
        program.shape(o, a, key, value, arrangement, combine, partition, compare)
        begun = program.begin() if program.begun is None else program.library.MPI_D_Next_round()
        self._goes_on(begun)
        program.tasks(_batch(o, a, outputs))
        program.interrupted()
        return outputs

    def sum(self, *numbers):
        """The sums of these numbers over all ranks, the same on every rank: a list of as many. Also tells whether the round has failed."""
        self._between_tasks("sum")
        sums = (ctypes.c_double * len(numbers))(*numbers)
        self._goes_on(self._program.library.MPI_D_Sum(sums, len(numbers)) == _SUCCESS)
        return list(sums)

    def _between_tasks(self, what):
        if self._program.in_task:
            raise RuntimeError(f"{what} of Rounds is called between rounds, and not by an O or A function")

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
    program.shape(o, a, key, value, arrangement, combine, partition, compare)
    program.library.MPI_D_Set_window(_unsigned(width, "the width"))

    def work(task):
        nonlocal late
        if task.side == "A":
            _eager(a, task)
            return
        if task.rank not in inputs:
            inputs[task.rank] = task, _pairs(o, task)
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
            task.send_at(*_parts(o, pair, 3))
            if task._advanced > advanced:
                return

    program.begin()
    program.tasks(work)
    program.end()
    return late
