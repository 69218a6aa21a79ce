/* The gradient of the loss of a recurrent network whose gates weigh each number by itself, by hand. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GIVEN, HIDDEN, CELL, FORGET, ENTER, OUT, CHANGE, SQUASHED, KEPT };

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

void lstm_gradient(const double *restrict gates, const double *restrict extra, const double *restrict x,
                   double *restrict d_gates, double *restrict d_extra, int length, int layers, int width) {
    const size_t row = width, layer = KEPT * row, turn = layers * layer;
    double *kept = malloc((length - 1) * turn * sizeof(double)), *top = malloc((length - 1) * row * sizeof(double));
    double *hidden = calloc(layers * row, sizeof(double)), *cell = calloc(layers * row, sizeof(double));
    double *guess = malloc(row * sizeof(double)), *given = malloc(row * sizeof(double));
    for (int t = 0; t < length - 1; t++) {
        for (int j = 0; j < width; j++) given[j] = x[t * row + j] * extra[j];
        for (int l = 0; l < layers; l++) {
            const double *w = gates + l * 8 * row;
            double *k = kept + t * turn + l * layer, *h = hidden + l * row, *c = cell + l * row;
            for (int j = 0; j < width; j++) {
                k[GIVEN * row + j] = given[j], k[HIDDEN * row + j] = h[j], k[CELL * row + j] = c[j];
                const double f = sigmoid(given[j] * w[j] + w[4 * row + j]);
                const double e = sigmoid(h[j] * w[row + j] + w[5 * row + j]);
                const double o = sigmoid(given[j] * w[2 * row + j] + w[6 * row + j]);
                const double n = tanh(h[j] * w[3 * row + j] + w[7 * row + j]);
                c[j] = c[j] * f + e * n;
                const double s = tanh(c[j]);
                given[j] = h[j] = o * s;
                k[FORGET * row + j] = f, k[ENTER * row + j] = e, k[OUT * row + j] = o;
                k[CHANGE * row + j] = n, k[SQUASHED * row + j] = s;
            }
        }
        memcpy(top + t * row, given, row * sizeof(double));
    }
    memset(d_gates, 0, layers * 8 * row * sizeof(double));
    memset(d_extra, 0, 3 * row * sizeof(double));
    memset(hidden, 0, layers * row * sizeof(double)); /* from here on gradients */
    memset(cell, 0, layers * row * sizeof(double));
    const double scale = -1.0 / ((length - 1) * (double)width);
    for (int t = length - 2; t >= 0; t--) {
        const double *next = x + (t + 1) * row;
        double sum = 2, all = 0;
        for (int j = 0; j < width; j++) {
            guess[j] = exp(top[t * row + j] * extra[row + j] + extra[2 * row + j]);
            sum += guess[j], all += next[j];
        }
        for (int j = 0; j < width; j++) {
            const double d = scale * (next[j] - guess[j] / sum * all);
            d_extra[row + j] += d * top[t * row + j], d_extra[2 * row + j] += d;
            given[j] = d * extra[row + j];
        }
        for (int l = layers - 1; l >= 0; l--) {
            const double *w = gates + l * 8 * row, *k = kept + t * turn + l * layer;
            double *dw = d_gates + l * 8 * row, *dh = hidden + l * row, *dc = cell + l * row;
            for (int j = 0; j < width; j++) {
                const double f = k[FORGET * row + j], e = k[ENTER * row + j], o = k[OUT * row + j];
                const double n = k[CHANGE * row + j], s = k[SQUASHED * row + j], h = k[HIDDEN * row + j];
                const double g = dh[j] + given[j], c = dc[j] + g * o * (1 - s * s);
                const double at_f = c * k[CELL * row + j] * f * (1 - f), at_e = c * n * e * (1 - e);
                const double at_o = g * s * o * (1 - o), at_n = c * e * (1 - n * n), in = k[GIVEN * row + j];
                dc[j] = c * f;
                dw[j] += at_f * in, dw[4 * row + j] += at_f;
                dw[row + j] += at_e * h, dw[5 * row + j] += at_e;
                dw[2 * row + j] += at_o * in, dw[6 * row + j] += at_o;
                dw[3 * row + j] += at_n * h, dw[7 * row + j] += at_n;
                dh[j] = at_e * w[row + j] + at_n * w[3 * row + j];
                given[j] = at_f * w[j] + at_o * w[2 * row + j];
            }
        }
        for (int j = 0; j < width; j++) d_extra[j] += given[j] * x[t * row + j];
    }
    free(kept), free(top), free(hidden), free(cell), free(guess), free(given);
}
