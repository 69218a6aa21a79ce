"""Object files as images: the code does the same wherever it is put; what is not understood is refused."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.llvm.compiler import Compiler, Source
from weft.backends.llvm.elf import UnknownObjectError, make_image
from weft.backends.llvm.export.processor import target_named
from weft.backends.llvm.image import load_image, process_address
from weft.backends.llvm.target import host_target

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"), reason="images are for Linux"
)

MACHINES = {"x86-64-v3": 62, "armv8-a": 183}  # and their numbers in ELF

CALLS = """
declare i64 @labs(i64)
declare i64 @twice(i64)
@count = internal global i64 0
@start = internal global i64 5
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@functions = internal constant [2 x ptr] [ptr @twice, ptr @own]

define i64 @absolute(i64 %x) {
  %y = call i64 @labs(i64 %x)
  ret i64 %y
}

define i64 @four_times(i64 %x) {
  %y = call i64 @twice(i64 %x)
  %z = call i64 @twice(i64 %y)
  ret i64 %z
}

define i64 @counted() {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  %first = load i64, ptr @start
  %sum = add i64 %new, %first
  ret i64 %sum
}

define i64 @looked_up(i64 %i) {
  %place = getelementptr i64, ptr @table, i64 %i
  %value = load i64, ptr %place
  ret i64 %value
}

define i64 @own(i64 %x) {
  %y = mul i64 %x, 100
  ret i64 %y
}

define i64 @by_pointer(i64 %i, i64 %x) {
  %place = getelementptr ptr, ptr @functions, i64 %i
  %function = load ptr, ptr %place
  %y = call i64 %function(i64 %x)
  ret i64 %y
}

define i64 @chosen(i64 %i) {
entry:
  switch i64 %i, label %other [i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e]
a:
  %r0 = call i64 @labs(i64 -7)
  ret i64 %r0
b:
  %r1 = call i64 @twice(i64 21)
  ret i64 %r1
c:
  %r2 = call i64 @own(i64 3)
  ret i64 %r2
d:
  %r3 = call i64 @counted()
  ret i64 %r3
e:
  ret i64 55
other:
  ret i64 -1
}
"""
TWICE = """
define i64 @twice(i64 %x) {
  %y = shl i64 %x, 1
  ret i64 %y
}
"""
NAMES = ("absolute", "four_times", "counted", "looked_up", "by_pointer", "chosen")


@lru_cache
def objects(cpu: str = "host", *, optimise: bool = False) -> tuple[bytes, ...]:
    compiler = Compiler(target_named(cpu))
    return tuple(compiler.compile(Source(text, optimise=optimise), verify=True) for text in (CALLS, TWICE))


def call(address: int, *args: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(address)(*args))


@pytest.mark.parametrize("optimise", [False, True])
def test_code_from_several_objects_runs(optimise: bool) -> None:
    image = make_image(objects(optimise=optimise), NAMES)
    codes = load_image(image, process_address)
    assert codes is not None
    at = {name: code.address for name, code in codes.items()}
    assert call(at["absolute"], -3) == 3
    assert call(at["four_times"], 5) == 20
    assert [call(at["looked_up"], i) for i in range(4)] == [10, 20, 30, 40]
    assert [call(at["by_pointer"], i, 7) for i in range(2)] == [14, 700]
    assert [call(at["chosen"], i) for i in range(6)] == [7, 42, 300, 6, 55, -1]
    assert list(image.imports) == ([] if optimise else ["labs"])  # LLVM knows what it does


def test_each_load_has_data_of_its_own() -> None:
    image = make_image(objects(), NAMES)
    first, second = load_image(image, process_address), load_image(image, process_address)
    assert first is not None
    assert second is not None
    assert [call(first["counted"].address) for _ in range(3)] == [6, 7, 8]
    assert call(second["counted"].address) == 6


def test_code_stays_in_memory_as_long_as_a_function_is_held() -> None:
    codes = load_image(make_image(objects(), NAMES), process_address)
    assert codes is not None
    kept = codes["four_times"]
    del codes
    assert call(kept.address, 2) == 8


def test_memory_is_never_writable_and_executable() -> None:
    codes = load_image(make_image(objects(), NAMES), process_address)
    assert codes is not None
    address = codes["four_times"].address
    rows = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [(*(int(end, 16) for end in row[0].split("-")), row[1]) for row in rows]
    [rights] = [rights for begin, end, rights in spans if begin <= address < end]
    assert rights.startswith("r-x")  # type: ignore[attr-defined]


def test_name_that_is_nowhere_gives_no_code() -> None:
    assert load_image(make_image(objects(), NAMES), lambda name: None) is None


def test_functions_of_vectors_read_their_constants() -> None:
    text = """
define void @scaled(ptr %x) {
  %v = load <16 x float>, ptr %x, align 4
  %w = fmul <16 x float> %v, <float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, float 6.0, float 7.0,
    float 8.0, float 9.0, float 10.0, float 11.0, float 12.0, float 13.0, float 14.0, float 15.0, float 16.0>
  store <16 x float> %w, ptr %x, align 4
  ret void
}
"""
    data = Compiler(host_target()).compile(Source(text), verify=True)
    codes = load_image(make_image([data], ["scaled"]), process_address)
    assert codes is not None
    numbers = (ctypes.c_float * 16)(*[2.0] * 16)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(codes["scaled"].address)(ctypes.addressof(numbers))
    assert list(numbers) == [2.0 * i for i in range(1, 17)]


def test_name_that_no_object_defines_is_refused() -> None:
    with pytest.raises(UnknownObjectError):
        make_image(objects(), ["missing"])


def test_name_that_two_objects_define_is_refused() -> None:
    with pytest.raises(UnknownObjectError, match="twice is defined twice"):
        make_image([*objects(), objects()[1]], ["four_times"])


def test_object_for_an_unknown_machine_is_refused() -> None:
    other = objects()[1][:18] + (243).to_bytes(2, "little") + objects()[1][20:]
    with pytest.raises(UnknownObjectError, match="for x86-64 or 64-bit ARM"):
        make_image([other], ["twice"])


def test_objects_for_two_machines_are_refused() -> None:
    with pytest.raises(UnknownObjectError, match="x86-64 and 64-bit ARM"):
        make_image([objects("x86-64-v3")[0], objects("armv8-a")[1]], NAMES)


@pytest.mark.parametrize("optimise", [False, True])
@pytest.mark.parametrize("cpu", MACHINES)
def test_objects_of_both_architectures_become_images(cpu: str, optimise: bool) -> None:
    made = objects(cpu, optimise=optimise)
    assert {int.from_bytes(data[18:20], "little") for data in made} == {MACHINES[cpu]}
    image = make_image(made, NAMES)
    assert list(image.imports) == ([] if optimise else ["labs"])
    assert sorted(image.exports) == sorted(NAMES)
    assert all(0 <= at < image.fixed for at in image.exports.values())
    assert all(image.fixed <= at for at in image.imports.values())


@pytest.mark.parametrize("cpu", MACHINES)
def test_relocation_of_an_unknown_kind_is_refused(cpu: str) -> None:
    whole = bytearray(objects(cpu)[0])
    kind = {"x86-64-v3": 4, "armv8-a": 283}[cpu]  # of a call
    at = whole.index(kind.to_bytes(4, "little"), whole.index(b"\x7fELF") + 64)
    found = 0
    while at >= 0:
        whole[at : at + 4] = (9999).to_bytes(4, "little")
        found += 1
        at = whole.find(kind.to_bytes(4, "little"), at + 4)
    assert found
    with pytest.raises(UnknownObjectError):
        make_image([bytes(whole), objects(cpu)[1]], NAMES)


def far_calls() -> str:
    """Functions and tables whose addresses need every way that code has to reach them."""
    sizes = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "<2 x i64>": 16}
    lines = [
        "@padding = internal constant [9999 x i8] zeroinitializer, align 1",
        "declare ptr @calloc(i64, i64)",
    ]
    lines += ["@outside = external global i64"]
    for number, (kind, size) in enumerate(sizes.items()):
        value = f"<i64 {number + 3}, i64 {number + 3}>" if "x" in kind else number + 3
        lines += [f"@v{number} = internal global {kind} {value}, align {size}"]
        lines += [f"define void @set{number}(ptr %to) {{", f"  %x = load volatile {kind}, ptr @v{number}"]
        lines += [f"  store volatile {kind} %x, ptr %to, align 1", "  ret void", "}"]
    lines += ["define ptr @where() {", "  ret ptr @outside", "}"]
    lines += ["define ptr @which() {", "  ret ptr @calloc", "}"]
    return "\n".join(lines)


def test_data_of_every_size_and_addresses_outside_are_found() -> None:
    data = Compiler(host_target()).compile(Source(far_calls(), optimise=False), verify=True)
    names = [f"set{number}" for number in range(5)] + ["where", "which"]
    outside = ctypes.c_int64(1)
    places = {"outside": ctypes.addressof(outside), "calloc": process_address("calloc")}
    codes = load_image(make_image([data], names), places.get)
    assert codes is not None
    for number, size in enumerate((1, 2, 4, 8, 16)):
        found = (ctypes.c_uint8 * 16)()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(codes[f"set{number}"].address)(ctypes.addressof(found))
        expected = (number + 3).to_bytes(min(size, 8), "little") * (2 if size == 16 else 1)
        assert bytes(found) == expected + bytes(16 - size)
    assert call(codes["where"].address) == places["outside"]
    assert call(codes["which"].address) == places["calloc"]


def test_code_that_is_written_over_earlier_code_runs_as_written() -> None:
    """Addresses are used again and again, so that instructions fetched before would be stale ones."""
    seen, addresses = [], set()
    for number in range(40):
        text = f"define i64 @number() {{\n  ret i64 {number}\n}}"
        data = Compiler(host_target()).compile(Source(text, optimise=False), verify=True)
        codes = load_image(make_image([data], ["number"]), process_address)
        assert codes is not None
        seen.append(call(codes["number"].address))
        addresses.add(codes["number"].address)
        del codes
    assert seen == list(range(40))
    assert len(addresses) < 40


def test_data_of_a_thread_is_refused() -> None:
    text = "@own = thread_local global i64 1\ndefine ptr @f() {\n  ret ptr @own\n}\n"
    data = Compiler(host_target()).compile(Source(text), verify=True)
    with pytest.raises(UnknownObjectError):
        make_image([data], ["f"])


@settings(max_examples=300)
@given(st.data(), st.sampled_from(sorted(MACHINES)))
def test_damaged_object_is_refused_or_makes_an_image(data: st.DataObject, cpu: str) -> None:
    whole, other = objects(cpu)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = {
        "cut": whole[:at],
        "flip": whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :],
    }[data.draw(st.sampled_from(["cut", "flip"]))]
    try:
        image = make_image([damaged, other], NAMES)
    except UnknownObjectError:
        return
    assert len(image.data) < 1 << 20
