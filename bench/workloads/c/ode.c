/* Van der Pol's equation by Bogacki and Shampine's method with steps of adaptive size. */

#include <math.h>

static float slope(float x, float v) { return 5 * (1 - x * x) * v - x; }

void ode(const float *start, float *result) {
    const float end = 20, tolerance = 1e-4f;
    float x = start[0], v = start[1], t = 0, h = 0.01f;
    float x1 = v, v1 = slope(x, v);
    while (t < end) {
        h = fminf(h, end - t);
        const float ax = x + h * x1 / 2, av = v + h * v1 / 2;
        const float x2 = av, v2 = slope(ax, av);
        const float bx = x + h * x2 * 0.75f, bv = v + h * v2 * 0.75f;
        const float x3 = bv, v3 = slope(bx, bv);
        const float cx = x + h * (2 * x1 + 3 * x2 + 4 * x3) / 9;
        const float cv = v + h * (2 * v1 + 3 * v2 + 4 * v3) / 9;
        const float x4 = cv, v4 = slope(cx, cv);
        const float ex = h * (-5 * x1 / 72 + x2 / 12 + x3 / 9 - x4 / 8);
        const float ev = h * (-5 * v1 / 72 + v2 / 12 + v3 / 9 - v4 / 8);
        const float error = sqrtf(ex * ex + ev * ev) / tolerance;
        if (error <= 1) {
            t += h;
            x = cx, v = cv, x1 = x4, v1 = v4;
        }
        const float factor = 0.9f * powf(error + 1e-10f, -1.0f / 3);
        h *= fminf(fmaxf(factor, 0.2f), 5.0f);
    }
    result[0] = x, result[1] = v;
}
