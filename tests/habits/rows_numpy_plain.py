"""Expressions that mean in weft what they mean in NumPy, which is asked; see ``rows_pytorch``."""

import re

from tests.habits.hint import Hint, Row

# x, y, v, m and s are tensors; X, Y, V, M and S the arrays they were made of
_NAME = re.compile(r"(?<![\w.'])([xyvms])\b(?!=)")

_SAME = """
np.array([1, 2, 3]) * 2
np.array([[1, 2], [3, 4]]).sum(axis=0)
np.array([1, 2, 3]).mean()
np.mean(x, axis=0)
np.mean(x, 0)
np.std(x, axis=0, ddof=1)
np.var(x, axis=1, keepdims=True)
np.sum(x, axis=1, keepdims=True)
np.sum(x, 1)
np.max(x, 1)
np.amax(x, 0)
np.min(x)
np.argmax(x, axis=1)
np.argmax(x)
np.argsort(v)
np.argsort(-v)
np.argsort(v)[::-1]
np.sort(v)[::-1]
np.sort(x, axis=None)
np.unique(v)
np.cumsum(v)
np.cumsum(x, axis=1)
np.diff(x, axis=0)
np.diff(v, n=2)
np.clip(x, 2, 4)
np.clip(x, None, 4)
np.where(x > 2, x, 0)
np.nonzero(v > 1)
np.argwhere(x > 2)
np.flatnonzero(v > 1)
np.any(x > 5)
np.all(x > 0, axis=1)
np.isnan(x).sum()
np.dot(s, v[:2])
x @ y.T
np.cross(v[:3], v[1:])
np.linalg.norm(x)
np.linalg.norm(x, axis=1)
np.linalg.norm(v, 1)
np.linalg.norm(v, ord=np.inf)
np.linalg.det(s)
np.linalg.eig(s)[0].real
np.linalg.eigh(s)[0]
np.linalg.svd(s)[1]
np.linalg.svd(x, full_matrices=False)[0].shape
np.linalg.solve(s, v[:2])
np.linalg.lstsq(s, v[:2], rcond=None)[0]
np.linalg.qr(s)[1].shape
np.linalg.matrix_rank(s)
np.linalg.pinv(s)
np.linspace(0, 1, 5)
np.linspace(0, 1, 4, endpoint=False)
np.arange(0, 10, 3)
np.arange(5.0)
np.logspace(0, 2, 3)
np.geomspace(1, 100, 3)
np.zeros((2, 3), dtype=int)
np.ones((2, 2), dtype=bool)
np.full((2, 2), 3.0)
np.eye(3)
np.identity(3)
np.empty((2, 2)).shape
np.zeros_like(x)
np.diag(s)
np.tri(3)
np.tril(s)
np.triu(s, 1)
np.meshgrid(np.arange(2), np.arange(3))
np.meshgrid(np.arange(2), np.arange(3), indexing='ij')
np.reshape(x, (3, 2))
x.reshape(3, -1)
np.transpose(x)
np.transpose(x[None], (2, 0, 1)).shape
np.swapaxes(x, 0, 1)
np.moveaxis(x[None], 0, -1).shape
np.expand_dims(x, 0).shape
np.expand_dims(x, (0, 1)).shape
np.squeeze(x[None]).shape
x[:, np.newaxis].shape
np.stack([x, y], axis=-1).shape
np.vstack([x, y])
np.hstack([x, y])
np.hstack([v, v])
np.column_stack([v, v])
np.dstack([x, y]).shape
np.array_split(v, 3)
np.hsplit(x, 3)
np.vsplit(x, 2)
np.append(v, 5)
np.append(v, [1, 2])
np.append(x, y, axis=0)
np.tile(v, 2)
np.tile(x, (2, 1))
np.repeat(x, 2, axis=0)
np.flip(v)
np.flip(x, 1)
np.flipud(x)
np.rot90(x)
np.pad(v, (1, 2), constant_values=7)
np.pad(x, ((1, 0), (0, 1)))
np.pad(v, 1, mode='edge')
np.pad(v, 2, mode='reflect')
np.pad(v, 1, 'constant')
np.take(v, [0, 2])
np.take(x, 1, axis=1)
np.take_along_axis(x, np.argsort(x, axis=1), axis=1)
np.searchsorted(np.array([1.0, 2.0, 3.0]), 2.5)
np.digitize(v, np.array([1.5, 2.5]))
np.bincount(np.array([0, 1, 1]))
np.interp(2.5, np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0]))
np.percentile(x, 50)
np.percentile(x, [25, 75])
np.quantile(x, 0.5, axis=1)
np.median(x)
np.average(v, weights=np.arange(4))
np.ptp(x)
np.round(x / 3, 2)
np.around(x / 3, 1)
np.floor(x / 2)
np.sqrt(x)
np.square(x)
np.power(x, 2)
np.exp(x)
np.log(x)
np.log1p(x)
np.log2(x)
np.log10(x)
np.sin(x)
np.arctan2(x, y)
np.hypot(x, y)
np.sign(x - 3)
np.mod(x, 2)
np.fmod(-x, 4)
np.remainder(-x, 4)
np.floor_divide(x, 2)
np.maximum(x, 3)
np.minimum(x, y)
np.fmax(x, y)
np.logical_and(x > 1, x < 4)
np.logical_not(m)
np.isclose(x, y)
np.allclose(x, x)
np.array_equal(x, x)
np.array_equal(x, y)
np.isin(v, [1, 2])
np.intersect1d(v, np.array([1.0, 2.0]))
np.union1d(v, np.array([9.0]))
np.setdiff1d(v, np.array([1.0]))
np.prod(x)
np.nansum(x)
np.nanmean(x, axis=0)
np.nanmax(x)
np.nanstd(x)
np.nan_to_num(np.array([np.nan, np.inf]), nan=1.0).shape
np.einsum('ij,kj->ik', x, y)
np.tensordot(x, y, axes=([1], [1]))
np.tensordot(x, y.T, 1)
np.convolve(v, [1, 1])
np.convolve(v, np.ones(2), mode='same')
np.correlate(v, [1, 1])
np.polyval([1, 2], 3)
np.fft.fft(v)
np.fft.rfft(v)
np.fft.fftshift(v)
np.atleast_2d(v).shape
x.astype(int)
x.astype('float64')
x.astype(np.int32)
x.mean(axis=0)
x.mean(1)
x.max()
x.max(axis=1)
x.min(axis=0)
x.argmax()
x.var(axis=0)
x.cumsum()
x.prod()
x.round(1)
x.any()
x.all(axis=0)
x.squeeze()
x.trace()
x.take([0, 1])
x[0]
x[-1, -1]
x[:, 1]
x[[0, 1], [1, 2]]
x[np.array([0, 1]), np.array([1, 2])]
x[:, np.array([True, False, True])]
x[..., 0]
x[1][2]
x > 2
(x > 2) & (x < 5)
(x > 2) | (y > 3)
~(x > 2)
x == y
x != 3
x % 2 == 0
-x
x / 2
x // 2
x ** 2
2 / x
1 - x
10 - v
v[v.argsort()]
x + v[:3]
x * np.array([1, 2, 3])
np.finfo(np.float32).eps
np.iinfo(np.int32).max
np.asarray([1.0])
np.copy(x)
np.array([x, y]).shape
np.array(3.0).item()
np.array([1, 2]).dtype == np.int64
np.array([True]).dtype == bool
np.count_nonzero(x > 2)
np.triu_indices(3)
np.tril_indices(3, -1)
np.unravel_index(4, (2, 3))
np.mgrid[0:2, 0:3].shape
np.ones(3)[:, None] * np.ones(4)
np.sqrt(4)
np.exp(1)
np.abs(-3)
np.sin(0)
np.maximum(1, 2)
np.sum(x > 2)
np.where([True, False], 1, 2)
np.nan_to_num(x)
np.heaviside(x - 2, 0.5)
np.sinc(x)
np.deg2rad(x)
np.reciprocal(x)
np.exp2(x)
np.logaddexp(x, y)
np.rint(x / 2)
np.trunc(x / 2)
np.copysign(x, -y)
np.nextafter(x, y)
np.signbit(-x)
np.angle(x + 1j)
np.real(x)
np.bitwise_and(5, 3)
np.left_shift(np.array([1]), 2)
np.ediff1d(v)
np.permute_dims(x, (1, 0))
np.concat([x, y]).shape
np.vander(v)
x.cumprod(axis=1)
x.mT
"""


def of_numpy(expression: str) -> str:
    """The expression about arrays."""
    return _NAME.sub(lambda found: found[1].upper(), expression.replace("np.", "N."))


_KEY = Hint("functions of weft.random take a key first", "weft.randint")
ROWS: list[Row] = [
    *((line, of_numpy(line)) for line in _SAME.strip().splitlines()),
    ("np.random.randint(0, 10, 5)", _KEY),
    ("np.random.randint(0, 10, size=(2, 3))", _KEY),
    ("np.random.normal(size=(2,))", _KEY),
    ("np.random.normal(0, 1, (2,))", _KEY),
    ("np.random.uniform(0, 1, (2,))", _KEY),
    ("np.random.choice([1, 2, 3])", _KEY),
    ("np.random.choice(5, 3)", _KEY),
    ("np.random.permutation(5)", _KEY),
    ("x.reshape(-1, order='F')", Hint("elements are taken row by row; for columns first, use x.T")),
    (
        "np.stack([[1, 2], [3, 4]])",
        Hint("takes a sequence of tensors", "weft.tensor(...)"),
    ),
    ("np.concatenate([[1, 2], [3]])", Hint("make each one with weft.tensor(...)")),
    ("np.nanpercentile(x, 50)", Hint("use weft.percentile(x[~weft.isnan(x)], q)")),
    ("np.frompyfunc(abs, 1, 1)", Hint("use weft.vmap, or a plain function of tensors")),
    ("np.ravel_multi_index((1, 1), (2, 3))", Hint("add up the indices")),
    ("np.iterable(v)", Hint("tensors with axes are iterable")),
    ("np.shares_memory(x, x)", Hint("use np.shares_memory(x.numpy(), y.numpy())")),
    ("np.may_share_memory(x, x)", Hint("use np.may_share_memory(x.numpy(), y.numpy())")),
    ("np.matvec(s, v[:2])", Hint("use weft.matmul(x, v[..., None])[..., 0], or x @ v")),
    ("np.array_str(v)", Hint("use str(x)")),
    ("np.array_repr(v)", Hint("use repr(x)")),
    ("np.hanning(4)", Hint("use weft.hann_window(n, periodic=False)")),
    ("np.roots([1, -3, 2])", Hint("np.roots")),
    ("x.byteswap()", Hint("use x.numpy().byteswap()")),
    ("x.setflags(write=False)", Hint("x.numpy().setflags")),
    ("x.argpartition(1)", Hint("use weft.argsort(x), or x.topk(k)")),
    ("np.identity(x)", Hint("n must be an int, got f32[2,3]", "x.clone() copies a tensor")),
]
