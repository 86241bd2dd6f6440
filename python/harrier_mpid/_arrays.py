"""Keys and values in NumPy arrays: their bytes are those of the same keys and values when they are yielded.

Arrays whose elements have these bytes already are sent from where they are, and received into arrays: values of int64 and float64, and
anything where keys or values are `bytes`. Others are converted, a piece at a time: keys that are int, whose bytes have the order of the
numbers, and numbers of other widths or byte orders."""

import numpy

# Pairs that are sent at a time, which bounds the memory of what has to be converted.
PIECE = 65536
_SIGN = numpy.uint64(1 << 63)


class _Raw:
    """`bytes`: those of the elements, as they lie in memory."""

    def check(self, what, dtype):
        if dtype.hasobject:
            raise TypeError(f"arrays of {dtype} have no bytes of their own but pointers to objects, which mean nothing elsewhere")
        if dtype.kind == "U":
            raise TypeError(f"the {what} are an array of texts ({dtype}), which are no bytes: send them one by one, with {what[:-1]}=str")
        if dtype.kind == "S":
            # As elements they are shorter, so that a pair that is yielded would have others.
            raise TypeError(f"the {what} are an array of {dtype}, which leaves out zeros at the ends of its elements: view it as V{dtype.itemsize}")

    def check_range(self, what, array):
        pass

    def encode(self, array):
        return array

    def buffer(self, dtype, length):
        return numpy.empty(length, dtype)

    def decode(self, what, received, dtype):
        return received


class _Int:
    """`int` as a value: 64 bits in the machine's byte order."""

    wire = numpy.dtype(numpy.int64)

    def check(self, what, dtype):
        if dtype.kind not in "iu":
            raise TypeError(f"the {what} of this job are int, and not what an array of {dtype} has")

    def check_range(self, what, array):
        if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >= 1 << 63:
            raise OverflowError(f"the {what[:-1]} {array.max()} is out of range: {what} that are int are from -2**63 to 2**63 - 1")

    def encode(self, array):
        return array.astype(numpy.int64, copy=False)

    def buffer(self, dtype, length):
        return numpy.empty(length, self.wire)

    def decode(self, what, received, dtype):
        if dtype == received.dtype:
            return received
        ends = numpy.iinfo(dtype)
        for number in (int(received.min()), int(received.max())):
            if not ends.min <= number <= ends.max:
                raise OverflowError(f"the {what[:-1]} {number} is out of range of {dtype}")
        return received.astype(dtype)


class _OrderedInt(_Int):
    """`int` as a key: the order of the bytes is that of the numbers."""

    wire = numpy.dtype(">u8")

    def encode(self, array):
        return (super().encode(array).view(numpy.uint64) ^ _SIGN).astype(self.wire, copy=False)

    def decode(self, what, received, dtype):
        return super().decode(what, (received.astype(numpy.uint64) ^ _SIGN).view(numpy.int64), dtype)


class _Float:
    """`float`: 64 bits in the machine's byte order."""

    def check(self, what, dtype):
        # Wider ones lose digits, which numbers that are yielded do not.
        if dtype.kind not in "f" or dtype.itemsize > 8:
            raise TypeError(f"the {what} of this job are float, and not what an array of {dtype} has")

    def check_range(self, what, array):
        pass

    def encode(self, array):
        return array.astype(numpy.float64, copy=False)

    def buffer(self, dtype, length):
        return numpy.empty(length, numpy.float64)

    def decode(self, what, received, dtype):
        return received.astype(dtype, copy=False)


_KEYS = {bytes: _Raw(), int: _OrderedInt()}
_VALUES = {bytes: _Raw(), int: _Int(), float: _Float()}


def _codecs(key, value):
    for what, kind, known in (("keys", key, _KEYS), ("values", value, _VALUES)):
        if kind not in known:
            names = [each.__name__ for each in known]
            names = ", ".join(names[:-1]) + " or " + names[-1]
            raise TypeError(f"arrays have {what} that are {names}, and the {what} of this job are {kind.__name__}")
    return ("keys", _KEYS[key]), ("values", _VALUES[value])


def pieces(keys, key, values, value):
    """The arrays as the library takes them, a piece after the other, of a job with these types of keys and values."""
    codecs = _codecs(key, value)
    for (what, codec), array in zip(codecs, (keys, values)):
        if not isinstance(array, numpy.ndarray):
            raise TypeError(f"the {what} are no NumPy array but {type(array).__name__}")
        if isinstance(array, numpy.ma.MaskedArray):
            raise TypeError(f"the {what} are a masked array: leave out what is masked before (numpy.ma.compressed)")
        if array.ndim != 1:
            raise ValueError(f"arrays of one dimension are sent, and that of the {what} has {array.ndim}")
        if not array.flags.c_contiguous:
            raise ValueError(f"arrays without gaps are sent, and that of the {what} has some (numpy.ascontiguousarray copies it)")
        codec.check(what, array.dtype)
        codec.check_range(what, array)
    if len(keys) != len(values):
        raise ValueError(f"there are as many keys as values, and not {len(keys)} and {len(values)}")
    (_, key_codec), (_, value_codec) = codecs
    return (
        (key_codec.encode(keys[at : at + PIECE]), value_codec.encode(values[at : at + PIECE])) for at in range(0, len(keys), PIECE)
    )


class Receiver:
    """Arrays that the library writes into, and what they are in arrays of the types that are asked for."""

    def __init__(self, key, key_type, value, value_type, length):
        self._codecs = _codecs(key, value)
        self._types = numpy.dtype(key_type), numpy.dtype(value_type)
        for (what, codec), dtype in zip(self._codecs, self._types):
            codec.check(what, dtype)
        self.keys, self.values = (codec.buffer(dtype, length) for (_, codec), dtype in zip(self._codecs, self._types))

    def received(self, count):
        """The first `count` pairs."""
        buffers = self.keys[:count], self.values[:count]
        return tuple(
            codec.decode(what, buffer, dtype) for (what, codec), buffer, dtype in zip(self._codecs, buffers, self._types)
        )
