"""Buffers that cannot be used, or that are used by two at once: exceptions, never a crash."""

import ctypes
import gc
import mmap
import sys
import threading
import types
import weakref

import numpy
import pytest

import valkey_rdma
from valkey_rdma import LMCacheClient


def test_memory_of_many_kinds(client, key):
    value = numpy.arange(10_000, dtype=numpy.float32)
    client.set_from(key, value)
    anonymous = mmap.mmap(-1, value.nbytes)
    array = numpy.zeros((100, 100), dtype=numpy.float32)
    for buffer in (bytearray(value.nbytes), memoryview(bytearray(value.nbytes)), anonymous, array):
        assert client.get_into(key, buffer) == value.nbytes
        assert bytes(memoryview(buffer).cast("B") if buffer is array else buffer) == value.tobytes()
    anonymous.close()


@pytest.mark.parametrize(
    "buffer",
    [
        b"read-only",
        memoryview(b"read-only"),
        memoryview(bytearray(100))[::2],
        numpy.zeros((10, 10))[:, ::2],
        numpy.asfortranarray(numpy.zeros((10, 10))),
        numpy.frombuffer(b"read-only", dtype=numpy.uint8),
    ],
    ids=["bytes", "memoryview", "strided", "columns", "fortran", "read-only array"],
)
def test_memory_that_cannot_be_written(client, key, buffer):
    client.set_from(key, b"value")
    with pytest.raises(BufferError):
        client.get_into(key, buffer)
    with pytest.raises(BufferError):
        client.mget_into([key, key], [bytearray(10), buffer])


@pytest.mark.parametrize("buffer", [None, "text", 5, object(), [1, 2]])
def test_objects_without_memory(client, key, buffer):
    for call in (client.get_into, client.set_from):
        with pytest.raises(TypeError):
            call(key, buffer)


class TensorWithConjugateBit:
    """As torch's, whose bytes are not those of its values."""

    untyped_storage = None

    def is_contiguous(self):
        return True

    def detach(self):
        return self

    def view(self, shape_or_type):
        if shape_or_type == -1:
            return self
        raise RuntimeError("view.dtype is not supported with the conjugate bit")


def test_a_tensor_that_torch_does_not_show_as_bytes(client, key, monkeypatch):
    torch = types.ModuleType("torch")
    torch.uint8 = "uint8"
    monkeypatch.setitem(sys.modules, "torch", torch)
    for call in (client.get_into, client.set_from):
        with pytest.raises(BufferError, match="conjugate bit") as raised:
            call(key, TensorWithConjugateBit())
        assert type(raised.value.__cause__) is RuntimeError


def test_released_memory(client, key):
    view = memoryview(bytearray(10))
    view.release()
    closed = mmap.mmap(-1, 10)
    closed.close()
    for buffer in (view, closed):
        for call in (client.get_into, client.set_from):
            with pytest.raises((BufferError, ValueError)):
                call(key, buffer)


def test_memory_in_use_by_two(client, key):
    buffer = bytearray(100)
    view = memoryview(buffer)
    with pytest.raises(BufferError, match="in use"):
        client.mget_into([key, key], [buffer, buffer])
    with pytest.raises(BufferError, match="in use"):
        client.mget_into([key, key], [view[:60], view[50:]])
    view.release()
    # What was refused is not in use any more.
    buffer.extend(b"more")
    with pytest.raises(BufferError):
        client.mget_into([key, key], [buffer, b"read-only"])
    buffer.extend(b"more")
    # Neighbours are not in each other's way.
    view = memoryview(buffer)
    assert client.mget_into([key, key], [view[:50], view[50:]]) == [None, None]
    # Reading the same memory twice is harmless.
    client.mset_from([key + "a", key + "b"], [buffer, buffer])
    view.release()
    buffer.extend(b"not in use")


@pytest.mark.parametrize("length", [10, 100_000], ids=["short", "long"])
def test_memory_is_free_after_calls_that_fail_or_have_copied_it(client, key, length):
    buffer = bytearray(length)
    failing = [
        (TypeError, lambda: client.command("SET", buffer, object())),
        (TypeError, lambda: client.pipeline().command("SET", buffer, object())),
        (TypeError, lambda: client.blocking_command("BLPOP", buffer, object())),
        (ValueError, lambda: client.get_into(key, buffer, timeout=-1)),
        (ValueError, lambda: client.mget_into([key], [buffer], timeout=-1)),
        (ValueError, lambda: client.set_from(key, buffer, timeout=-1)),
        (ValueError, lambda: client.mset_from([key], [buffer], ttl=-1)),
        (TypeError, lambda: client.exists_many([buffer, object()])),
        (valkey_rdma.RefusedError, lambda: client.command("SELECT", buffer)),
    ]
    for error, call in failing:
        with pytest.raises(error):
            call()
        buffer.append(1)
    pipeline = client.pipeline()
    if length < 1000:
        pipeline.command("SET", key, buffer)
        buffer.append(1)
    del pipeline


def test_memory_cannot_be_resized_or_freed_while_in_use(url, key):
    client = LMCacheClient(url, key_prefix=key)
    buffer = bytearray(1 << 20)
    mapped = mmap.mmap(-1, 1 << 20)
    client.submit_batch_set(["a", "b"], [buffer, mapped])
    # Exported until the batch is drained, which only this thread does.
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    with pytest.raises(BufferError):
        mapped.close()
    drain_one(client)
    buffer.extend(b"more")
    mapped.close()
    client.close()


def test_the_last_reference_may_be_dropped_while_in_use(url, key):
    class Tracked(bytearray):
        pass

    client = LMCacheClient(url, key_prefix=key)
    buffer = Tracked(1 << 20)
    gone = weakref.ref(buffer)
    client.submit_batch_set(["a"], [buffer])
    del buffer
    gc.collect()
    assert gone() is not None
    drain_one(client)
    assert gone() is None
    client.close()


def test_threads_that_fight_for_memory_get_exceptions(client, key):
    client.set_from(key, bytes(1 << 20))
    buffer = bytearray(1 << 20)
    outcomes = []

    def work():
        for _ in range(50):
            try:
                outcomes.append(client.get_into(key, buffer))
            except BufferError:
                outcomes.append("in use")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 200
    assert set(outcomes) <= {1 << 20, "in use"}
    buffer.extend(b"not in use")


def drain_one(client):
    import select

    select.select([client.event_fd()], [], [], 30)
    (completion,) = client.drain_completions()
    return completion


def test_references_to_objects_are_neither_sent_nor_overwritten(client, key):
    client.command("SET", key, b"x" * 16)
    references = (ctypes.py_object * 2)(b"a", b"b")
    for call in (lambda: client.set_from(key, references), lambda: client.get_into(key, references)):
        with pytest.raises(TypeError, match="references to Python objects"):
            call()
    assert list(references) == [b"a", b"b"]
    assert client.command("GET", key) == b"x" * 16

    class Plain(ctypes.Structure):
        _fields_ = (("Offset", ctypes.c_int), ("O", ctypes.c_int))

    client.set_from(key, Plain(1, 2))
    plain = Plain()
    assert client.get_into(key, plain) == ctypes.sizeof(Plain)
    assert (plain.Offset, plain.O) == (1, 2)

    # Numpy describes no dates to others, and the bytes are the same.
    dates = numpy.array(["2026-11-26", "1970-01-01"], dtype="datetime64[s]")
    client.set_from(key, dates)
    read = numpy.zeros(2, dtype="datetime64[s]")
    assert client.get_into(key, read) == read.nbytes
    assert (read == dates).all()
    mixed = numpy.zeros(2, dtype=[("date", "datetime64[s]"), ("object", object)])
    for references in (mixed, numpy.array([object()])):
        with pytest.raises((TypeError, BufferError)):
            client.set_from(key, references)
