/* Floyd and Warshall's algorithm in place. */

void floyd(float *restrict d, int n) {
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++) {
            const float first = d[i * n + k];
            for (int j = 0; j < n; j++) {
                const float length = first + d[k * n + j];
                if (length < d[i * n + j]) d[i * n + j] = length;
            }
        }
}
