"""The text of random training steps: losses, gradients, optimizers, modules and settings in any order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

HEAD = """import weft
import weft.nn.functional as F
from weft import nn


def make(net, ema, opt, other, schedule, o, ps):
    def step(x, y, c, n):
"""

CONDITIONS = (
    "c > 0",
    "n > 1",
    "loss < o.best",
    "o.count % 2 == 0",
    "float(loss) > 0.7",
    "loss.item() < 1.0",
    "o.t > 1.5",
    "int(n) % 2 == 1",
    "weft.isfinite(loss)",
    "net.seen > 3",
    "ps[0].grad is None",
    "ps[1].grad is not None",
)
PARAMS = ("net.parameters()", "net.a.parameters()", "[net.b.weight, net.a.bias]", "ps")
LOSSES = (
    "F.mse_loss(net(x), y)",
    "(net(x) * y).sum()",
    "F.mse_loss(net(x) * c, y) + 0.1 * o.t",
    "F.mse_loss(net(x[:2]), y[:2])",
)
SINGLE = (
    *("opt.zero_grad()", "opt.zero_grad(set_to_none=False)", "net.zero_grad()"),
    *("opt.step()", "opt.step()", "other.step()", "schedule.step()"),
    "nn.utils.clip_grad_norm_(net.parameters(), 0.5)",
    "nn.utils.clip_grad_value_(net.parameters(), 0.1)",
    *("o.count += 1", "o.best = min(o.best, float(loss))", "o.best = loss.item() * 0.9"),
    *("o.t = loss.detach()", "o.t = o.t * 0.9 + 0.1 * loss.detach()", "o.t.add_(c)", "net.last = o.t"),
    *("net.eval()", "net.train()", "ema.load_state_dict(net.state_dict())"),
    *("o.kept = [p.detach() for p in ps]", "o.held = tuple(p.detach().clone() for p in ps)"),
    *("o.g.mul_(0.5)", "o.g = ps[0].detach()", "ps[0].grad = o.g"),
)
EACH_GRADIENT = (
    *("p.grad.mul_(0.5)", "p.grad = p.grad * 0.5", "p.grad += 0.01 * p.detach()", "p.grad = None"),
    *("p.data.sub_(0.1 * p.grad)", "p.grad.zero_()"),
    "o.g = o.g * 0.9 if ps[0].grad is None else ps[0].grad * 1.0",
)
OF_A_GRADIENT = (
    *("o.saved = ps[1].grad", "ps[1].grad = o.saved", "ps[1].grad, o.saved = o.saved, ps[1].grad"),
    *("o.saved.mul_(0.5)", "o.saved.copy_(ps[1].grad)", "ps[1].grad.copy_(o.saved)"),
    *("h = ps[1].grad; h.mul_(0.5)", "h = ps[1].grad; ps[1].grad = h * 2; h.add_(0.1)"),
    *("ps[1].grad = ps[1].grad.clone()", "ps[1].grad = ps[1].grad[:]", "o.saved = ps[1].grad.detach()"),
    *("ps[1].grad[0] = c * 0.1", "ps[1].grad.data.mul_(0.5)", "ps[1].grad = o.saved + ps[1].grad"),
)
EACH_MOMENTUM = (
    *("v.mul_(0.9).add_(p.grad); p.sub_(0.05 * v)", "v.lerp_(p.grad, 0.1)", "p.sub_(0.05 * v)"),
    *("v.copy_(p.grad)", "p.grad.copy_(v)", "p.grad = v", "p.grad = v.clone()", "p.grad = p.grad + 0.1 * v"),
)
OF_NORMS = (
    *(
        "total += p.grad.square().sum()",
        "total = total + p.grad.abs().sum()",
        "total = max(total, p.grad.max())",
    ),
    *("total = p.grad.sum()", "total *= 0.5; o.total = total"),
)
EACH_VALUE = ("p.mul_(0.99)", "p.sub_(0.01)", "p.add_(o.t * 0.01)", "p.copy_(p * 0.9)", "p[0] = c * 0.1")
EACH_AVERAGE = (
    *("e.mul_(0.9).add_(0.1 * p)", "e.copy_(0.9 * e + 0.1 * p)", "e.data = 0.9 * e + 0.1 * p"),
    "e.lerp_(p, 0.1)",
)
PARTS = (  # of a loss, which some parameters have on one way alone
    ("if {c}:", "    loss = loss + ({p} ** 2).sum()"),
    ("if {c}:", "    loss = loss * {p}.mean()", "else:", "    loss = loss.detach() + {q}.sum()"),
    ("loss = loss + {p}.sum() if {c} else loss * c",),
    ("for i in range(int(n)):", "    loss = loss + 0.1 * {p}.sum()"),
    (
        "for i in range(3):",
        "    if i < n:",
        "        loss = loss + {p}.sum()",
        "    else:",
        "        loss = loss * c",
    ),
    ("k = n * 1", "while k > 1:", "    loss = loss + {p}.mean()", "    k = k - 1"),
    ("for v in c * y[0]:", "    if v > 0:", "        loss = loss + v * {p}.sum()"),
    ("w = {p} if {c} else {e}", "loss = loss + (w * w).sum()"),
    ("w = [{p}, {e}, {p} * 1.0][int(n) % 3]", "loss = loss - (w * w).sum() * 0.1"),
    ("w = {p} * 1.0 if {c} else {e} * 2.0", "if {c}:", "    w = w.detach()", "loss = loss + w.sum()"),
    ("h = {p}.sum()", "if {c}:", "    loss = loss + h", "    if {c}:", "        loss = loss * {q}.mean()"),
    ("loss = weft.where(c > 0, loss, {p}.sum())",),
)
EACH_GROUP = ("g['lr'] *= 0.9", "g['lr'] = g['lr'] * 0.5 + 0.01", "g['lr'] = 0.05")


class Writer:
    """The lines of one step."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.counter = 0

    def put(self, depth: int, *lines: str) -> None:
        """Add lines, each inside of the one before it."""
        self.lines += ["    " * (depth + k) + line for k, line in enumerate(lines)]

    def one(self, found: Sequence[str]) -> str:
        return self.random.choice(found)

    def block(self, depth: int, most: int = 3) -> None:
        for _ in range(self.random.randint(1, most)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        choice = self.random.randrange(19 if depth < 5 else 11)
        self.counter += 1
        if choice < 4:
            self.put(depth, self.one(SINGLE))
        elif choice == 4:
            self.put(
                depth, f"for p in {self.one(PARAMS)}:", "if p.grad is not None:", self.one(EACH_GRADIENT)
            )
        elif choice == 5:
            self.put(depth, "with weft.no_grad():", f"for p in {self.one(PARAMS)}:", self.one(EACH_VALUE))
        elif choice == 6:
            zipped = "for e, p in zip(ema.parameters(), net.parameters()):"
            self.put(depth, "with weft.no_grad():", zipped, self.one(EACH_AVERAGE))
        elif choice == 7:
            self.put(depth, "for g in opt.param_groups:", self.one(EACH_GROUP))
        elif choice == 8:
            self.put(depth, f"loss = {self.one(LOSSES)}")
            self.put(depth, f"(loss * {self.one(('1.0', 'o.t', 'c', '(1.0 / (n + 1))'))}).backward()")
        elif choice == 9:
            self.put(depth, "if ps[1].grad is not None:", self.one(OF_A_GRADIENT))
        elif choice == 10:
            self.by_hand(depth)
        elif choice < 15:
            self.branch(depth)
        elif choice == 15:
            self.put(depth, f"for i{self.counter} in range({self.one(('2', 'int(n)', 'n'))}):")
            self.block(depth + 1, 2)
        elif choice == 16:
            self.gradients(depth)
        elif choice == 18:
            self.parts(depth)
        else:
            self.rollback(depth)

    def by_hand(self, depth: int) -> None:
        """Momentum, or a sum over the gradients, which may be a number of Python."""
        if self.random.random() < 0.5:
            self.put(depth, "with weft.no_grad():", "for v, p in zip(o.velocity, ps):")
            self.put(depth + 2, "if p.grad is not None:", self.one(EACH_MOMENTUM))
            return
        self.put(depth, self.one(("total = 0.0", "total = o.total", "total = 1.0")))
        self.put(depth, f"for p in {self.one(PARAMS)}:", "if p.grad is not None:", self.one(OF_NORMS))
        self.put(
            depth,
            self.one(
                ("o.total = total", "o.total = total * 0.5", "loss = loss + total", "o.t = o.t + total")
            ),
        )

    def branch(self, depth: int) -> None:
        self.put(depth, f"if {self.one(CONDITIONS)}:")
        self.block(depth + 1)
        if self.random.random() < 0.4:
            self.put(depth, "else:")
            self.block(depth + 1)

    def parts(self, depth: int) -> None:
        """A loss of which the run decides what parameters it is made of."""
        self.put(depth, f"loss = (ps[{self.random.randrange(4)}] ** 2).sum()")
        for _ in range(self.random.randint(1, 3)):
            i, k = self.random.randrange(4), self.random.randrange(4)
            names = {"p": f"ps[{i}]", "q": f"ps[{k}]", "e": f"list(ema.parameters())[{i}]"}
            for line in self.one(PARTS):
                self.put(depth, line.format(c=self.one(CONDITIONS), **names))
        self.put(depth, self.one(("loss.backward()", "loss.backward()", "(loss * 0.5).backward()")))

    def gradients(self, depth: int) -> None:
        """Gradients by hand, or a gradient of gradients."""
        name = f"gs{self.counter}"
        if self.random.random() < 0.5:
            self.put(depth, f"{name} = weft.autograd.grad(F.mse_loss(net(x), y), ps)")
            self.put(depth, "with weft.no_grad():", f"for p, g in zip(ps, {name}):", "p -= 0.05 * g")
        else:
            self.put(depth, f"{name} = weft.autograd.grad(F.mse_loss(net(x), y), ps, create_graph=True)")
            self.put(depth, f"sum((g ** 2).sum() for g in {name}).backward()")

    def rollback(self, depth: int) -> None:
        """Values that are kept, and come back on a way."""
        name = f"kept{self.counter}"
        self.put(depth, f"{name} = [p.detach().clone() for p in ps]")
        self.statement(depth)
        self.put(
            depth, f"if {self.one(CONDITIONS)}:", "with weft.no_grad():", f"for p, q in zip(ps, {name}):"
        )
        self.put(depth + 3, "p.copy_(q)")


def program(seed: int) -> str:
    """A function that makes a step, of what the step changes."""
    writer = Writer(seed)
    writer.put(2, f"loss = {writer.one(LOSSES)}")
    if writer.random.random() < 0.7:
        writer.put(2, "loss.backward()")
    writer.block(2, 6)
    if writer.random.random() < 0.8:
        writer.put(2, "opt.step()")
    writer.put(
        2, writer.one(("return loss", "return loss.detach()", "return loss, o.t", "return float(loss)"))
    )
    return HEAD + "\n".join(writer.lines) + "\n\n    return step\n"
