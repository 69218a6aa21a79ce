/* The gradient of a least squares fit of a polynomial to the sign of its argument, by hand. */

#include <string.h>

void llsq(const double *restrict x, double *restrict grad, int n, int m) {
    memset(grad, 0, sizeof(double) * m);
    for (int i = 0; i < n; i++) {
        const double t = -1.0 + 2.0 * i / (n - 1);
        double power = 1, error = t > 0 ? 1 : t < 0 ? -1 : 0;
        for (int j = 0; j < m; j++) {
            error -= x[j] * power;
            power *= t;
        }
        power = 1;
        for (int j = 0; j < m; j++) {
            grad[j] -= error * power;
            power *= t;
        }
    }
}
