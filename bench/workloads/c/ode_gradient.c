/* The gradient through Runge and Kutta's method for y[0]' = x[0], y[i]' = x[i] y[i - 1], by hand. */

#include <stdlib.h>
#include <string.h>

static void slope(const double *restrict x, const double *restrict y, double *restrict out, int n) {
    out[0] = x[0];
    for (int i = 1; i < n; i++) out[i] = x[i] * y[i - 1];
}

/* From the gradient of a slope at y to those of x and y, which are added. */
static void pull(const double *restrict x, const double *restrict y, const double *restrict g,
                 double *restrict dx, double *restrict dy, int n) {
    dx[0] += g[0];
    for (int i = 1; i < n; i++) {
        dx[i] += g[i] * y[i - 1];
        dy[i - 1] += g[i] * x[i];
    }
}

static void along(const double *restrict y, double h, const double *restrict k, double *restrict out, int n) {
    for (int i = 0; i < n; i++) out[i] = y[i] + h * k[i];
}

void ode_gradient(const double *restrict x, double *restrict dx, int n, int steps) {
    const double h = 1.0 / steps, parts[4] = {h / 6, h / 3, h / 3, h / 6}, ahead[4] = {0, h / 2, h / 2, h};
    double *states = calloc((size_t)(steps + 1) * n, sizeof(double));
    double *k = malloc(4 * n * sizeof(double)), *at = malloc(4 * n * sizeof(double));
    double *g = calloc(n, sizeof(double)), *dk = malloc(4 * n * sizeof(double)), *d = malloc(n * sizeof(double));
    memset(dx, 0, n * sizeof(double));
    for (int s = 0; s < steps; s++) {
        const double *y = states + (size_t)s * n;
        double *next = states + (size_t)(s + 1) * n;
        memcpy(next, y, n * sizeof(double));
        for (int p = 0; p < 4; p++) {
            if (p == 0) memcpy(at, y, n * sizeof(double));
            else along(y, ahead[p], k + (p - 1) * n, at + p * n, n);
            slope(x, at + p * n, k + p * n, n);
            for (int i = 0; i < n; i++) next[i] += parts[p] * k[p * n + i];
        }
    }
    g[n - 1] = 1;
    for (int s = steps - 1; s >= 0; s--) {
        const double *y = states + (size_t)s * n;
        memcpy(at, y, n * sizeof(double));
        for (int p = 1; p < 4; p++) {
            slope(x, at + (p - 1) * n, k + (p - 1) * n, n);
            along(y, ahead[p], k + (p - 1) * n, at + p * n, n);
        }
        for (int p = 0; p < 4; p++)
            for (int i = 0; i < n; i++) dk[p * n + i] = parts[p] * g[i];
        for (int p = 3; p >= 0; p--) {
            memset(d, 0, n * sizeof(double));
            pull(x, at + p * n, dk + p * n, dx, d, n);
            for (int i = 0; i < n; i++) g[i] += d[i];
            if (p > 0)
                for (int i = 0; i < n; i++) dk[(p - 1) * n + i] += ahead[p] * d[i];
        }
    }
    free(states), free(k), free(at), free(g), free(dk), free(d);
}
