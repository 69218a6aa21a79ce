/* The Jacobian of the places of a skin by the angles of the bones of a hand, forward, by hand. */

#include <math.h>
#include <string.h>

enum { MOST = 32, ANGLES = 26 };

typedef double matrix[4][4];

static void product(const matrix a, const matrix b, matrix out) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            double sum = 0;
            for (int k = 0; k < 4; k++) sum += a[i][k] * b[k][j];
            out[i][j] = sum;
        }
}

/* A rotation by three angles or, with a number from 0 to 2, its derivative by one of them. */
static void turn(const double *angles, int by, matrix out) {
    const double a = by == 0 ? -sin(angles[0]) : cos(angles[0]), b = by == 0 ? cos(angles[0]) : sin(angles[0]);
    const double c = by == 1 ? -sin(angles[1]) : cos(angles[1]), d = by == 1 ? cos(angles[1]) : sin(angles[1]);
    const double e = by == 2 ? -sin(angles[2]) : cos(angles[2]), f = by == 2 ? cos(angles[2]) : sin(angles[2]);
    const double no[3] = {by != 0, by != 1, by != 2}; /* terms without the angle have no derivative by it */
    memset(out, 0, sizeof(matrix));
    out[0][0] = no[0] * c * e, out[0][1] = b * d * e - no[1] * a * f, out[0][2] = a * d * e + no[1] * b * f;
    out[1][0] = no[0] * c * f, out[1][1] = b * d * f + no[1] * a * e, out[1][2] = a * d * f - no[1] * b * e;
    out[2][0] = -no[0] * no[2] * d, out[2][1] = no[2] * b * c, out[2][2] = no[2] * a * c;
    out[3][3] = by < 0;
}

void hand(const matrix *rest, const double *weights, const double *skin, const double *angles,
          const int *parents, double *restrict out, int bones, int vertices) {
    static matrix place[MOST], slope[ANGLES][MOST];
    static int used[ANGLES][MOST];
    memset(used, 0, sizeof used);
    for (int i = 0; i < bones; i++) {
        const double own[3] = {i ? angles[4 + i] : angles[0], i ? 0 : angles[1], i ? 0 : angles[2]};
        matrix local, step, moved;
        turn(own, -1, step);
        product(rest[i], step, local);
        if (parents[i] < 0) memcpy(place[i], local, sizeof(matrix));
        else product(place[parents[i]], local, place[i]);
        for (int p = 0; p < ANGLES; p++)
            if (parents[i] >= 0 && used[p][parents[i]]) {
                product(slope[p][parents[i]], local, slope[p][i]);
                used[p][i] = 1;
            }
        for (int by = 0; by < (i ? 1 : 3); by++) {
            turn(own, by, step);
            product(rest[i], step, moved);
            const int p = i ? 4 + i : by;
            if (parents[i] < 0) memcpy(slope[p][i], moved, sizeof(matrix));
            else product(place[parents[i]], moved, slope[p][i]);
            used[p][i] = 1;
        }
    }
    for (int v = 0; v < vertices; v++)
        for (int p = 0; p < ANGLES; p++)
            for (int i = 0; i < 3; i++) {
                double sum = 0;
                for (int b = 0; b < bones; b++) {
                    if (!used[p][b]) continue;
                    double part = 0;
                    for (int j = 0; j < 4; j++) part += slope[p][b][i][j] * skin[v * 4 + j];
                    sum += weights[v * bones + b] * part;
                }
                out[(v * 3 + i) * ANGLES + p] = -sum;
            }
}
