"""Random programs about state: aliases, views, attributes, containers, closures, buffers, changes in place.

A program is the text of a function ``f(a, m, c, n)``: a row of three floats, a matrix of two rows, a number
that decides branches, and a whole number of turns. It reads and changes the world outside, too: ``o`` has
attributes, plain numbers, a position and special methods, ``L`` is a list, ``D`` a dict, ``net`` a module
with a buffer and a weight, ``z`` and ``turn`` are variables around it. Some are containers in containers.
Every name that holds a row may hold the same tensor as another one, or a view of it. Local lists and dicts
hold some of them, and local functions change them and what is around. In a quarter of the programs ``b0`` and
``b1`` are local lists, which may be one, or one from outside, and are put into others, and ``k`` is an
object: they leave in several places, ``o.box``, ``D["box"]``, ``o.node`` and what the function returns; right
sides of ``and`` and ``or`` change them. In
another quarter ``s0`` and ``s1`` are numbers of Python or tensors without axes, as ways and turns have it; so
are those that ``o.duo`` and ``o.last`` hold from call to call.
"""

from __future__ import annotations

from random import Random

LOCALS = ("v0", "v1", "v2")
OUTSIDE = ("o.p", "o.q", "L[0]", "L[1]", 'D["x"]', "z", "o.prop", 'o["k"]', "o.told", "net.kept")
INNER = ('D["in"]["v"]', "o.rows[0][0]", "o.rows[1][0]", 'D.get("in")["v"]')  # in containers of containers
NUMBERS = ("o.count", "o.best", 'D["n"]', 'D["in"]["n"]', "turn")  # plain ones of Python
BOXES = ("o.box", 'D["box"]')  # places of lists
SCALARS = ("s0", "s1")
CHANGES = "def bump(x, y):\n    x.add_(y * 0.25)\n    return x\n\n\n"
HEAD = "def make(o, L, D, net, z, turn):\n    def f(a, m, c, n):\n        nonlocal z, turn\n"
NODE = "class Node:\n    def __init__(self, row):\n        self.row = row\n\n\n"
WALKS = "def walk(x, y):\n    yield x\n    yield y * 0.5\n    yield y\n\n\n"
MEDDLES = "def meddle(x, y):\n    yield x\n    y.mul_(0.5)\n    yield y\n    x.add_(0.125)\n\n\n"
IMPORTS = "import collections\nimport copy\nimport heapq\n\nimport numpy as np\n\nimport weft\n\n\n"
PUTS = "def put(b, x):\n    b[0] = x\n    return True\n\n\n"
GROWS = "def up(v):\n    v += 0.25\n    return v\n\n\n"
PREAMBLE = f"{IMPORTS}{CHANGES}{GROWS}{PUTS}{NODE}{WALKS}{MEDDLES}{HEAD}"


class Writer:
    """The lines of one program."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.counter = 0
        self.loops = 0  # around
        self.rows: list[str] = []  # the names of rows of loops around
        self.has_boxes = self.chance(25)
        self.has_scalars = Random(f"scalars {seed}").randrange(100) < 25

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * (depth + 2) + text)

    # Expressions

    def place(self) -> str:
        """A name that can be read and assigned."""
        if self.has_boxes and self.chance(10):
            return self.random.choice(("b0[0]", "b1[0]", "k.row"))
        return self.random.choice(INNER if self.chance(8) else (*LOCALS, *LOCALS, *OUTSIDE))

    def held(self) -> str:
        """Some tensor that has a name, or a view of one: no new tensor."""
        if self.rows and self.chance(20):
            return self.random.choice(self.rows)
        choice = self.random.randrange(12)
        if choice < 6:
            return self.place()
        if choice == 6:
            return "a"
        if choice == 7:
            return self.random.choice(("net.buf", "net.buf", "L[int(n) % 2]"))
        if choice == 8:
            return f"m[{self.random.choice(('0', '1', 'o.at % 2'))}]"
        if choice == 9:
            return f"m.view(-1)[{(k := self.random.randrange(4))}:{k + 3}]"
        if choice == 10:
            view = self.random.choice(("[:]", ".view(3)", ".detach()", ".reshape(-1)", "[...]"))
            return f"{self.place()}{view}"
        return f"{self.place()}.view(1, 3).T.reshape(3, 1)[:, 0]"

    def row(self, deep: int = 2) -> str:
        """A row of three: some tensor, or a new one."""
        if deep == 0 or self.chance(35):
            return self.held()
        x, y = self.row(deep - 1), self.row(deep - 1)
        scalars = [f"({x} * {self.random.choice(SCALARS)})"] * 3 if self.has_scalars else []
        return self.random.choice(
            (
                *scalars,
                f"({x} + {y} * 0.5)",
                f"({x} * 0.5)",
                f"weft.tanh({x})",
                f"({x} - 0.25)",
                f"weft.sin({y})",
                f"({x} * c)",
                f"({x} * ({self.random.choice(NUMBERS)} * 0.125))",
                f"net({x})",
                f"bump({self.held()}, {y})",
            )
        )

    def test(self) -> str:
        if self.has_boxes and self.chance(12):  # whose right side changes what the call has made
            put = f"put({self.random.choice(('b0', 'b1'))}, {self.held()})"
            return self.random.choice((f"({self.test()} and {put})", f"({self.test()} or not {put})"))
        return self.random.choice(
            (
                "c > 0",
                f"{self.held()}.sum() > 0.3",
                f"{self.held()}[1] > {self.held()}[0]",
                "n > 1",
                "c * 2 < 0.5",
                "o",
                "len(o) > 2",
                f"{self.random.choice(NUMBERS)} > 1",
                f"{self.random.choice(NUMBERS)} > c",
                f"{self.quantified()}(x.sum() > 0.2 for x in ({self.held()}, {self.held()}))",
            )
        )

    def quantified(self) -> str:
        return self.random.choice(("any", "all"))

    # Statements

    def scalar(self, depth: int) -> None:
        """A statement about numbers of Python that may be tensors without axes, or one with them."""
        s, t = self.random.sample(SCALARS, 2)
        forms = [f"{s} = {self.number_or_tensor()}"] * 4 + [f"{s} = {t}", f"{s}, {t} = {t}, {s}"]
        forms += [f"{s} = {s} * 0.5 + 0.125", f"{s} += 0.25", f"{s} *= 0.5", f"o.best = float({s})"]
        forms += [f"{s} = {self.number_or_tensor()} if {self.test()} else {self.number_or_tensor()}"] * 2
        forms += [f"{self.held()}[1] = {s}", f"{self.held()}.mul_({s})"]
        forms += [f"o.duo = ({s}, {t})", f"{s} = o.duo[{self.random.randrange(2)}]", "o.last *= 0.5"]
        forms += [f"o.last = {s}", f"{s} = o.last", f"{s} = up({t})", f"{s} -= {self.number_or_tensor()}"]
        forms += [
            f"{s} = {self.random.choice(('max', 'min'))}({s}, {t})",
            f"{s} = -{t}",
            f"{s} = sum([{s}, {t}])",
        ]
        self.put(depth, self.random.choice(forms))

    def number_or_tensor(self) -> str:
        """Some number of Python, or a tensor without axes."""
        some = ("0.5", "c", "c * 0.5", "a[1]", "o.best", "float(c)", f"{self.held()}[0]", *SCALARS)
        return self.random.choice(some)

    def statement(self, depth: int) -> None:
        if self.has_scalars and self.chance(12):
            self.scalar(depth)
            return
        choice = self.random.randrange(100)
        if choice < 2:
            self.put(depth, "o.at = (o.at + 1) % 3")
        elif choice < 7:
            self.number(depth)
        elif choice < 18:
            self.put(depth, f"{self.place()} = {self.held()}")
        elif choice < 34:
            self.put(depth, f"{self.place()} = {self.row()}")
        elif choice < 62:
            self.change(depth)
        elif choice < 66:
            x, y = self.place(), self.place()
            self.put(depth, f"{x}, {y} = {y}, {x}")
        elif choice < 70:
            self.put(depth, f"w = {self.random.choice(('o', 'o2'))}; w.p = {self.held()}")
        elif choice < 76:
            self.special(depth)
        elif depth >= 3:
            self.change(depth)
        elif choice < 88 or (self.loops > 1 and self.chance(90)):  # three loops in each other are slow
            self.branch(depth)
        else:
            self.loops += 1
            self.loop(depth)
            self.loops -= 1

    def change(self, depth: int) -> None:
        x = self.held() if self.chance(70) else self.place()
        name = x.partition(".")[0].partition("[")[0]
        forms = [f"{x}.add_({self.row(1)} * 0.5)", f"{x}.mul_(0.5)", f"{x}[1] = c * 0.5", f"{x}[:2] = 0.25"]
        forms += [f"{x}[o.at] = c * 0.5", f"{x}[o.at].mul_(0.5)"]
        if x in (*LOCALS, *OUTSIDE, "a", "net.buf"):
            forms += [f"{x} += {self.row(1)}", f"{x} *= 0.5", f"{x} -= 0.125", f"{x}[0] += c * 0.5"] * 2
        forms += [f"o2 += {self.row(1)} * 0.25"] if name == "o" else []
        self.put(depth, self.random.choice(forms))

    def number(self, depth: int) -> None:
        """A statement that changes a plain number."""
        x, y = self.random.choice(NUMBERS), self.random.choice(NUMBERS)
        forms = [f"{x} = ({x} + 1) % 5", f"{x} = {y}", f"{x} = 2", f"{x} = int(n)", f"{x} = {y} * 0.5 + 1"]
        forms += [f"{x} = float({self.held()}[0])", f"{x}, {y} = {y}, {x}", f"{x} = max({y}, 1) - 1"]
        self.put(depth, self.random.choice(forms))

    def inner(self, depth: int) -> None:
        """A statement about containers in containers."""
        forms = [
            f"for b in o.rows: b[0] = {self.random.choice((self.held(), self.row(1), 'b[0] * 0.5'))}",
            f"for b in o.rows: b[0].mul_({self.random.choice(('0.5', 'c'))})",
            f'b = D.get("in"); b["v"] = {self.row(1)}; b["n"] = (b["n"] + 1) % 4',
            f'D.setdefault("in", {{}})["v"] = {self.held()}',
            f"b = o.rows[{self.random.randrange(2)}]; {self.place()} = b[0]; b[0] = {self.row(1)}",
            f"b = o.rows[0] if {self.test()} else o.rows[1]; {self.place()} = b[0] * 0.5",
            f"o.rows[0], o.rows[1] = o.rows[{self.random.randrange(2)}], o.rows[1]",
            f"b = list(o.rows); b[0][0] = {self.row(1)}; {self.place()} = b[1][0]",
        ]
        self.put(depth, self.random.choice(forms))

    def lists(self, depth: int) -> None:
        """A statement about slices of lists from outside, or copies of what they hold."""
        forms = [
            f"L[:] = [{self.random.choice((self.held(), self.row(1)))}, L[0]]",
            "L[:] = L[::-1]",
            "L[::-1] = list(L)",
            f"L[:1] = [{self.random.choice((self.held(), self.row(1)))}]",
            f"L[1:] = (x * 0.5 for x in ({self.held()},))",
            f"b = L[:]; b[:] = [b[1], {self.held()}]; {self.place()} = b[0]",
            f"b = [*L, {self.held()}]; del b[0]; {self.place()} = b[0]; {self.place()} = b[1]",
            "o.rows[:] = o.rows[::-1]",
            f"b = copy.deepcopy([x.detach() for x in L]); b[0].mul_(0.5); {self.place()} = b[0]",
            f"{self.place()} = copy.deepcopy({self.held()}.detach())",
            f"b = copy.copy(o.rows); b[0][0] = {self.row(1)}; b[1] = [{self.held()}]",
        ]
        self.put(depth, self.random.choice(forms))

    def walk(self, depth: int) -> None:
        """A loop along a generator, which may end early."""
        self.counter += 1
        x = f"x{self.counter}"
        kind = "meddle" if self.chance(12) else "walk"
        along = f"{kind}({self.held()}, {self.held()})"
        along = self.random.choice(
            (along, along, f"map(weft.sin, {along})", f"({x} * 0.5 for {x} in {along})")
        )
        self.put(depth, f"for {x} in {along}:")
        if self.chance(60):
            self.put(depth + 1, f"if {self.random.choice((self.test(), x + '.sum() > 0.1'))}: break")
        self.put(depth + 1, f"{self.place()} = {self.random.choice((x, x + ' * 0.5', self.held()))}")
        if self.chance(50):
            self.put(depth + 1, f"{self.held()}.add_({x})")

    def library(self, depth: int) -> None:
        """Statements about objects of libraries that the program makes."""
        self.counter += 1
        d, i = f"d{self.counter}", f"i{self.counter}"
        choice = self.random.randrange(4)
        if choice == 0:
            self.put(depth, f"{d} = collections.deque(({self.held()}, {self.row(1)}), maxlen=3)")
            self.put(depth, f"for {i} in {self.random.choice(('range(2)', 'm', 'L'))}:")
            self.put(depth + 1, f"{d}.append({d}.popleft() * 0.5)")
            self.put(depth, f"{d}.appendleft({self.held()}); {self.place()} = {d}.pop()")
            self.put(depth, f"{self.place()} = {d}[0]")
        elif choice == 1:
            self.put(depth, f"{d} = np.full(3, 0.5, np.float32)")
            self.put(depth, f"for {i} in {self.random.choice(('range(3)', 'L'))}:")
            self.put(depth + 1, self.random.choice((f"{d} *= 0.5", f"np.add({d}, 0.25, out={d})")))
            self.put(depth, f"{d}[1] = 0.25; {self.place()} = {self.held()} * weft.tensor({d})")
        elif choice == 2:
            self.put(depth, f"{d} = []")
            self.put(depth, f"for {i} in range(3): heapq.heappush({d}, (3 - {i}, {i}))")
            self.put(depth, f"{self.place()} = {self.held()} * (heapq.heappop({d})[1] * 0.25)")
        else:
            self.put(depth, f"{d} = collections.UserList([{self.held()}, {self.row(1)}])")
            if self.chance(50):
                self.put(depth, f"if {self.test()}: {d}[{self.random.randrange(2)}] = {self.held()}")
            self.put(depth, f"{self.place()} = {d}[0]; {self.held()}.add_({d}[1])")

    def boxes(self, depth: int) -> None:
        """A statement about local lists, which may be one, and are put into others."""
        x, y = self.random.sample(("b0", "b1"), 2)
        forms = [
            f"{x} = {y}",
            f"{x}, {y} = {y}, {x}",
            f"{x} = [{self.row(1)}]",
            f"{x} = [*{y}]",
            f"{x} = {y} if {self.test()} else [{self.held()}]",
            f"{x} = o.rows[{self.random.randrange(2)}]",
            f"{x}[0] = {self.row(1)}",
            f"{x}.append({self.row(1)}); {self.place()} = {x}.pop()",
            f"t = [{x}, {self.held()}]; t[0][0] = {self.row(1)}; {self.place()} = t[1]",
            f"t = {{'b': {x}, 'v': {self.held()}}}; {y} = t['b']; {y}[0] = {self.row(1)}",
            f"t = ({x}, {self.row(1)}) if {self.test()} else ({x}, {self.held()}); {y} = t[0]",
            f"({self.place()},) = {x}",
            f"{self.random.choice(BOXES)} = {x}",
            f"{self.random.choice(BOXES)} = {self.random.choice((x, '[' + self.held() + ']'))}",
            f"{x} = {self.random.choice(BOXES)}",
            f"{self.random.choice(BOXES)}[0] = {self.row(1)}",
            "o.box, D['box'] = D['box'], o.box",
            f"o.box, D['box'] = {x}, {self.random.choice((x, y))}",
            f"k = Node({self.held()}); k.box = {x}",
            f"k.row = {self.random.choice((self.held(), self.row(1)))}",
            f"k.box = {x}",
            f"{x} = k.box",
            "o.node = k",
            f"{self.test()} and put({x}, {self.row(1)})",
            f"assert {self.test()} or put({x}, {self.held()}), put({y}, {self.held()})",
        ]
        self.put(depth, self.random.choice(forms))

    def special(self, depth: int) -> None:
        """A statement with a local container, a function, or a special method."""
        if self.has_boxes and self.chance(50):
            self.boxes(depth)
            return
        choice = self.random.randrange(18)
        if choice > 11:
            forms = (self.inner, self.inner, self.inner, self.lists, self.walk, self.library)
            forms[choice - 12](depth)
        elif choice == 0:
            self.put(depth, f"l = [{self.held()}, {self.row(1)}]; l[0] += {self.row(1)} * 0.5")
            self.put(depth, f"{self.place()}, {self.place()} = l")
        elif choice == 1:
            self.put(depth, f"d = {{'k': {self.held()}}}; d['k'] *= 0.5; {self.place()} = d['k']")
        elif choice == 2:
            self.put(depth, f"for x in ({self.held()}, {self.held()}): x.mul_(0.75)")
        elif choice == 3:
            self.counter += 1
            self.put(depth, f"def g{self.counter}(x):")
            self.put(depth + 1, "nonlocal z")
            self.put(depth + 1, f"z = {self.random.choice(('x', 'x * 0.5', 'x[:]'))}")
            self.put(depth + 1, "return x.mul_(0.5)")
            self.put(depth, f"{self.place()} = g{self.counter}({self.held()})")
        elif choice == 4:
            self.put(depth, f"with o.scaled({self.held()}):")
            self.block(depth + 1)
        elif choice == 5:
            self.put(depth, f"{self.place()} = o({self.held()})")
        elif choice == 6:
            self.put(depth, f"with weft.{self.random.choice(('no_grad', 'no_grad', 'enable_grad'))}():")
            (self.block if self.chance(50) else self.change)(depth + 1)
        elif choice == 7:
            self.put(depth, f"{self.place()} = o @ {self.held()}")
        elif choice == 8:
            new = self.held() if self.chance(25) else f"({self.row(1)} * 0.5)"
            self.put(depth, f"{self.place()}.data = {new}")
        else:
            self.collect(depth)

    def collect(self, depth: int) -> None:
        """A list that a loop fills, and what is done with it."""
        self.counter += 1
        items, x = f"l{self.counter}", f"x{self.counter}"
        along = self.random.choice(("m", "range(2)", "range(n)"))
        self.rows += [x] if along == "m" else []
        held, row = self.held(), self.row(1)
        self.rows = [r for r in self.rows if r != x]
        item = x if along == "m" and self.chance(40) else self.random.choice((held, row, f"({held}).clone()"))
        kind = self.random.randrange(4)
        if kind == 0:
            self.put(depth, f"{items} = [{item} for {x} in {along}]")
        elif kind == 1 and along == "m":
            self.put(depth, f"{items} = list(m)")
        else:
            self.put(depth, f"{items} = []")
            self.put(depth, f"for {x} in {along}:")
            y = self.place()
            if self.chance(60):
                self.put(depth + 1, f"{y} = {item}")
            self.put(depth + 1, f"{items}.append({self.random.choice((item, y))})")
        after = [f"for x in {items}: x.mul_(0.75)", f"{self.place()} = sum({items}, start=a * 0.5)"]
        if along != "range(n)":
            after += [
                f"{self.place()} = {items}[-1]",
                f"{items}[0].mul_(0.75)",
                f"{self.place()}, {self.place()} = {items}",
            ] * 2
            after += [f"{self.place()} = weft.stack({items}).sum(0)"]
        for _ in range(self.random.randrange(1, 3)):
            self.put(depth, self.random.choice(after))

    def block(self, depth: int) -> None:
        for _ in range(self.random.randrange(1, 4)):
            self.statement(depth)

    def branch(self, depth: int) -> None:
        self.put(depth, f"if {self.test()}:")
        self.block(depth + 1)
        if self.chance(50):
            self.put(depth, "else:")
            self.block(depth + 1)

    def loop(self, depth: int) -> None:
        self.counter += 1
        i = f"i{self.counter}"
        kind = self.random.randrange(4)
        if kind == 0:
            self.put(depth, f"for {i} in range(2):")
        elif kind == 1:
            self.put(depth, f"for {i} in range(n):")
        elif kind == 2:
            self.put(depth, f"for {i} in m:")
        else:
            self.put(depth, f"{i} = 0")
            self.put(depth, f"while {i} < n:")
            self.put(depth + 1, f"{i} = {i} + 1")
        row = i if kind == 2 else f"L[{i}]"
        self.rows += [row] if kind in (0, 2) else []
        self.block(depth + 1)
        if self.chance(25):
            self.put(depth + 1, f"if {self.test()}: {self.random.choice(('break', 'continue'))}")
            self.statement(depth + 1)
        self.rows = [x for x in self.rows if x != row]
        if self.chance(10):
            self.put(depth, "else:")
            self.block(depth + 1)


def program(seed: int) -> str:
    """The text of one program."""
    writer = Writer(seed)
    for name in LOCALS:
        writer.put(0, f"{name} = {writer.random.choice(('a', 'o.p', 'm[0]', 'a * 0.5', 'L[0]', 'z'))}")
    writer.put(0, "o2 = o")
    if writer.has_scalars:
        writer.put(0, f"s0, s1 = {writer.random.choice(('0.5', 'c', 'a[1]', 'o.best'))}, 0.25")
    if writer.has_boxes:
        writer.put(0, f"b0, b1 = [{writer.random.choice(LOCALS)}], [a * 0.5]")
        writer.put(0, "k = Node(a * 0.25); k.box = b0")
    for _ in range(writer.random.randrange(3, 9)):
        writer.statement(0)
    rest = ", b0, b1, k" * writer.has_boxes + ", (s0, s1, o.duo, o.last)" * writer.has_scalars
    writer.put(0, f"return {writer.random.choice(LOCALS)}, {writer.row(1)}{rest}")
    return PREAMBLE + "\n".join(writer.lines) + "\n\n    return f\n"
