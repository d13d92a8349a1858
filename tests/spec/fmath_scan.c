/* Run the core's exp and log over ranges of bit patterns, for test_fmath.py. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "gs_math.h"

void scan_apply(const float *x, float *exp_of, float *log_of, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        exp_of[i] = gs_expf(x[i]);
        log_of[i] = gs_logf(x[i]);
    }
}

/* The spacing of floats at |value|, which is in the range of normal floats. */
static double ulp(double value)
{
    int exponent;
    frexp(value, &exponent);
    return ldexp(1.0, exponent - 24);
}

/* The greatest error in ulps over the floats of bits first..last. libm's doubles err by 2^-29 of a float's ulp. */
double scan_worst(int is_log, uint32_t first, uint32_t last)
{
    double worst = 0.0;
    for (uint64_t bits = first; bits <= last; ++bits) {
        const float x = gs_float_of((uint32_t)bits);
        const double truth = is_log ? log((double)x) : exp((double)x);
        const double got = is_log ? (double)gs_logf(x) : (double)gs_expf(x);
        const double error = truth == 0.0 ? (got != 0.0) * INFINITY : fabs(got - truth) / ulp(truth);
        worst = error > worst || error != error ? error : worst;
    }
    return worst;
}
