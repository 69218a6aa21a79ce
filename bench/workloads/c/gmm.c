/* The gradient of the likelihood of a mixture of Gaussians, by hand. */

#include <math.h>
#include <string.h>

enum { MOST = 64 };

static float logsumexp(const float *terms, int k) {
    float largest = terms[0], sum = 0;
    for (int c = 1; c < k; c++) largest = fmaxf(largest, terms[c]);
    for (int c = 0; c < k; c++) sum += expf(terms[c] - largest);
    return largest + logf(sum);
}

void gmm(const float *restrict alphas, const float *restrict means, const float *restrict logs,
         const float *restrict lower, const float *restrict x, float *restrict d_alphas,
         float *restrict d_means, float *restrict d_logs, float *restrict d_lower, int n, int d, int k) {
    float diagonal[MOST][MOST], base[MOST], y[MOST][MOST], terms[MOST];
    memset(d_means, 0, sizeof(float) * k * d);
    memset(d_logs, 0, sizeof(float) * k * d);
    memset(d_lower, 0, sizeof(float) * k * d * d);
    for (int c = 0; c < k; c++) {
        base[c] = alphas[c];
        for (int a = 0; a < d; a++) {
            diagonal[c][a] = expf(logs[c * d + a]);
            base[c] += logs[c * d + a];
        }
    }
    const float all = logsumexp(alphas, k);
    for (int c = 0; c < k; c++) d_alphas[c] = -n * expf(alphas[c] - all);
    for (int i = 0; i < n; i++) {
        const float *point = x + i * d;
        for (int c = 0; c < k; c++) {
            float norm = 0;
            const float *mean = means + c * d;
            for (int a = 0; a < d; a++) {
                float sum = diagonal[c][a] * (point[a] - mean[a]);
                for (int b = 0; b < a; b++) sum += lower[(c * d + a) * d + b] * (point[b] - mean[b]);
                y[c][a] = sum;
                norm += sum * sum;
            }
            terms[c] = base[c] - 0.5f * norm;
        }
        const float total = logsumexp(terms, k);
        for (int c = 0; c < k; c++) {
            const float weight = expf(terms[c] - total);
            const float *mean = means + c * d;
            d_alphas[c] += weight;
            for (int a = 0; a < d; a++) {
                const float slope = weight * y[c][a];
                const float scaled = slope * diagonal[c][a];
                d_logs[c * d + a] += weight - scaled * (point[a] - mean[a]);
                d_means[c * d + a] += scaled;
                for (int b = 0; b < a; b++) {
                    d_lower[(c * d + a) * d + b] -= slope * (point[b] - mean[b]);
                    d_means[c * d + b] += slope * lower[(c * d + a) * d + b];
                }
            }
        }
    }
}
