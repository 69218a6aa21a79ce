/* The Jacobian of the residuals of observations, with numbers that carry their 15 derivatives. */

#include <math.h>
#include <stdint.h>

enum { INPUTS = 15, LANES = 16 };

typedef struct {
    float value;
    float slope[LANES];
} dual;

static inline dual combine(float value, dual a, float da, dual b, float db) {
    dual out;
    out.value = value;
    for (int i = 0; i < LANES; i++) out.slope[i] = da * a.slope[i] + db * b.slope[i];
    return out;
}

static inline dual add(dual a, dual b) { return combine(a.value + b.value, a, 1, b, 1); }
static inline dual sub(dual a, dual b) { return combine(a.value - b.value, a, 1, b, -1); }
static inline dual mul(dual a, dual b) { return combine(a.value * b.value, a, b.value, b, a.value); }

static inline dual divide(dual a, dual b) {
    const float ratio = a.value / b.value;
    return combine(ratio, a, 1 / b.value, b, -ratio / b.value);
}

static inline dual scaled(float value, dual a, float da) { return combine(value, a, da, a, 0); }

static inline dual minus(dual a, float b) { a.value -= b; return a; }

static inline dual input(float value, int place) {
    dual out = {value, {0}};
    out.slope[place] = 1;
    return out;
}

static void observe(const float *camera, const float *point, float weight, const float *seen, float *out) {
    dual q[INPUTS];
    for (int i = 0; i < 11; i++) q[i] = input(camera[i], i);
    for (int i = 0; i < 3; i++) q[11 + i] = input(point[i], 11 + i);
    q[14] = input(weight, 14);
    dual a = q[0], b = q[1], c = q[2];
    const dual x = sub(q[11], q[3]), y = sub(q[12], q[4]), z = sub(q[13], q[5]);
    const dual squares = add(add(mul(a, a), mul(b, b)), mul(c, c));
    const float root = sqrtf(squares.value);
    const dual angle = scaled(root, squares, 0.5f / root);
    const dual cosine = scaled(cosf(root), angle, -sinf(root)), sine = scaled(sinf(root), angle, cosf(root));
    a = divide(a, angle), b = divide(b, angle), c = divide(c, angle);
    const dual along = mul(add(add(mul(a, x), mul(b, y)), mul(c, z)), scaled(1 - cosine.value, cosine, -1));
    dual u = add(add(mul(x, cosine), mul(sub(mul(b, z), mul(c, y)), sine)), mul(a, along));
    dual v = add(add(mul(y, cosine), mul(sub(mul(c, x), mul(a, z)), sine)), mul(b, along));
    const dual w = add(add(mul(z, cosine), mul(sub(mul(a, y), mul(b, x)), sine)), mul(c, along));
    u = divide(u, w), v = divide(v, w);
    const dual square = add(mul(u, u), mul(v, v));
    const dual distortion = minus(add(mul(q[9], square), mul(q[10], mul(square, square))), -1);
    const dual scale = mul(q[6], distortion);
    const dual first = mul(q[14], minus(add(mul(u, scale), q[7]), seen[0]));
    const dual second = mul(q[14], minus(add(mul(v, scale), q[8]), seen[1]));
    for (int i = 0; i < INPUTS; i++) out[i] = first.slope[i], out[INPUTS + i] = second.slope[i];
}

void bundle(const float *cameras, const float *points, const float *weights, const float *seen,
            const int64_t *camera, const int64_t *point, float *out, int n) {
    for (int i = 0; i < n; i++)
        observe(cameras + 11 * camera[i], points + 3 * point[i], weights[i], seen + 2 * i, out + 2 * INPUTS * i);
}
