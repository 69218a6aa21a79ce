/* Newton's method on the sum of squared distances to the nearest centres. */

#include <math.h>
#include <string.h>

enum { MOST = 64 };

void kmeans(float *restrict centres, const float *restrict points, int n, int d, int k, int iterations) {
    float gradient[MOST * MOST], curvature[MOST];
    for (int t = 0; t < iterations; t++) {
        memset(gradient, 0, sizeof(float) * k * d);
        memset(curvature, 0, sizeof(float) * k);
        for (int i = 0; i < n; i++) {
            int nearest = 0;
            float best = INFINITY;
            for (int c = 0; c < k; c++) {
                float distance = 0;
                for (int a = 0; a < d; a++) {
                    const float difference = points[i * d + a] - centres[c * d + a];
                    distance += difference * difference;
                }
                if (distance < best) best = distance, nearest = c;
            }
            for (int a = 0; a < d; a++)
                gradient[nearest * d + a] -= 2 * (points[i * d + a] - centres[nearest * d + a]);
            curvature[nearest] += 2;
        }
        for (int c = 0; c < k; c++)
            for (int a = 0; a < d; a++) centres[c * d + a] -= gradient[c * d + a] / curvature[c];
    }
}
