"""Whole small algorithms, as people write them."""

import weft
from tests.capture.programs.registry import program

V = [[0.5, 1.0, -0.75]]
W = [[2.0, 0.1, 0.3]]
A = [[[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]], [1.0, 2.0, 3.0]]


@program(A, loops=1)
def conjugate_gradient(a, b):
    x = b * 0
    r = b - a @ x
    p = r
    while (r @ r) > 1e-6:
        ap = a @ p
        alpha = (r @ r) / (p @ ap)
        x = x + alpha * p
        new = r - alpha * ap
        p = new + (new @ new) / (r @ r) * p
        r = new
    return x


@program([A[0]], loops=1)
def power_iteration(a):
    v = weft.ones(3)
    for _ in range(8):
        v = a @ v
        v = v / weft.sqrt((v * v).sum())
    return v @ (a @ v)


@program([A[0]])
def cholesky_by_hand(a):
    n = 3
    l = weft.zeros((3, 3))
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s = s - l[i, k] * l[j, k]
            if i == j:
                l[i, j] = weft.sqrt(s)
            else:
                l[i, j] = s / l[j, j]
    return l


@program(A)
def gauss_elimination(a, b):
    a, b = a * 1, b * 1
    for i in range(3):
        b[i] = b[i] / a[i, i]
        a[i] = a[i] / a[i, i]
        for j in range(3):
            if j != i:
                f = a[j, i]
                a[j] = a[j] - f * a[i]
                b[j] = b[j] - f * b[i]
    return b


@program([2.0, 3.0], [0.5, 1.5], loops=1)
def newton_with_derivative(a, start):
    def f(v):
        return v * v * v - a

    x = start
    n = 0
    while weft.abs(f(x)) > 1e-4 and n < 50:
        x = x - f(x) / weft.grad(f)(x)
        n = n + 1
    return x


@program([0.0, 3.0], [1.0, 2.0], loops=1)
def bisection(low, high):
    for _ in range(12):
        middle = (low + high) / 2
        if middle * middle < 2:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@program([V[0], 0.1], [W[0], 0.3], loops=1)
def gradient_descent(x, rate):
    for _ in range(5):
        g = weft.grad(lambda v: ((v - 1) * (v - 1)).sum())(x)
        x = x - rate * g
    return x


@program([[0.0, 1.0]], [[1.0, -0.5]], loops=1)
def runge_kutta(y):
    def f(v):
        return weft.stack([v[1], -v[0]])

    h = 0.1
    for _ in range(5):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


@program([[0.0, 1.0]], [[1.0, -0.5]])
def adaptive_step(y):
    t, h = 0.0, 0.4
    while t < 1.0:
        full = y + h * weft.stack([y[1], -y[0]])
        half = y + h / 2 * weft.stack([y[1], -y[0]])
        half = half + h / 2 * weft.stack([half[1], -half[0]])
        if weft.abs(full - half).max() > 0.02:
            h = h * 0.5
            continue
        y = half
        t = t + h
    return y


@program([0.3, 0.5], [-0.7, 0.1], [1.5, 1.5], differentiable=False, loops=1)
def mandelbrot(a, b):
    x, y = a * 0, b * 0
    n = 0
    while x * x + y * y < 4 and n < 30:
        x, y = x * x - y * y + a, 2 * x * y + b
        n = n + 1
    return weft.as_tensor(n)


@program([[3.0, -1.0, 2.0, -4.0, 5.0]], [[-1.0, -2.0, -3.0, -4.0, -5.0]], loops=1)
def maximum_subarray(x):
    best = x[0]
    here = x[0]
    for i in range(1, 5):
        if here > 0:
            here = here + x[i]
        else:
            here = x[i]
        if here > best:
            best = here
    return best


@program([[1.0, 2.0, 3.0], [2.0, 2.0, 4.0]], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
def time_warping(a, b):
    n = 3
    cost = weft.full((4, 4), 100.0)
    cost[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            step = weft.abs(a[i - 1] - b[j - 1])
            cost[i, j] = step + weft.minimum(weft.minimum(cost[i - 1, j], cost[i, j - 1]), cost[i - 1, j - 1])
    return cost[n, n]


@program([[[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.8, 0.1]]], loops=1)
def viterbi_like(p):
    score = weft.log(p[0])
    for t in range(1, 3):
        score = weft.max(score[:, None] + weft.log(p), axis=0) + weft.log(p[t])
    return score


@program([[0.5, 0.25, 1.0]], [[3.0, 1.0, -2.0]], loops=1)
def fixed_point_with_tolerance(x):
    previous = x * 0 + 100
    while weft.abs(x - previous).max() > 1e-3:
        previous = x
        x = weft.cos(x) * 0.5
    return x


@program([[1.0, 2.0, 3.0, 4.0]], [[0.0, -1.0, 2.0, 8.0]], loops=1)
def exponential_smoothing(x):
    level = x[0]
    out = []
    for i in range(4):
        level = 0.3 * x[i] + 0.7 * level
        out.append(level)
    return weft.stack(out)


@program([V[0]], [W[0]])
def soft_threshold_rows(x):
    y = weft.zeros(3)
    for i in range(3):
        if x[i] > 0.4:
            y[i] = x[i] - 0.4
        elif x[i] < -0.4:
            y[i] = x[i] + 0.4
    return y


@program([[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]], loops=1)
def lstm_like(m):
    w = weft.tensor([[0.5, -0.3], [0.2, 0.4]])
    h, c = weft.zeros(2), weft.zeros(2)
    for row in m:
        gate = weft.sigmoid(row + h @ w)
        c = gate * c + (1 - gate) * weft.tanh(row)
        h = gate * weft.tanh(c)
    return h + c


@program([[1.0, 1.0]], [[-0.5, 2.0]])
def line_search(x):
    def loss(v):
        return (1 - v[0]) ** 2 + 10 * (v[1] - v[0] ** 2) ** 2

    for _ in range(3):
        g = weft.grad(loss)(x)
        step = weft.tensor(0.1)
        while loss(x - step * g) > loss(x) - 0.1 * step * (g @ g) and step > 1e-4:
            step = step * 0.5
        x = x - step * g
    return x


@program([5], [9], differentiable=False)
def count_primes(n):
    count = weft.tensor(0)
    for i in range(2, n + 1):
        prime = weft.tensor(True)
        j = weft.tensor(2)
        while j * j <= i:
            if i % j == 0:
                prime = weft.tensor(False)
                break
            j = j + 1
        if prime:
            count = count + 1
    return count


@program([[2.0, -1.0, 0.5]], [[0.1, 0.1, 0.1]])
def clipping_by_norm(g):
    norm = weft.sqrt((g * g).sum())
    if norm > 1.0:
        g = g / norm
    return g


@program([7], [12], differentiable=False, loops=1)
def fibonacci(n):
    a, b = weft.tensor(0), weft.tensor(1)
    for _ in range(n):
        a, b = b, a + b
    return a
