#include "gs_nn.h"

#include <stdbool.h>
#include <string.h>

#include "gs_math.h"
#include "gs_rng.h"

/* Independent outputs side by side: as many as the machine's vectors hold. How many changes speed, never results,
   because every output still adds its own terms in order. */
#if defined(__GNUC__) && defined(__AVX512F__)
#define LANES 16u
#elif defined(__GNUC__) && defined(__AVX__)
#define LANES 8u
#elif defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON))
#define LANES 4u
#else
#define LANES 1u
#endif

#if LANES > 1
typedef float gs_lanes_t __attribute__((vector_size(4 * LANES)));
#else
typedef float gs_lanes_t;
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#else
#define INLINE static inline
#define UNROLL
#endif

#define TILE (2u * LANES) /* samples that the forward pass takes side by side */

uint32_t gs_nn_offset(const gs_nn_t *nn, uint32_t layer)
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < layer; ++l) {
        sum += (nn->dims[l] + 1) * nn->dims[l + 1];
    }
    return sum;
}

uint32_t gs_nn_parameters(const gs_nn_t *nn)
{
    return gs_nn_offset(nn, nn->layers);
}

uint32_t gs_nn_widest(const gs_nn_t *nn)
{
    uint32_t widest = 0;
    for (uint32_t l = 0; l <= nn->layers; ++l) {
        widest = nn->dims[l] > widest ? nn->dims[l] : widest;
    }
    return widest;
}

static uint32_t widest_output(const gs_nn_t *nn)
{
    uint32_t widest = 0;
    for (uint32_t l = 1; l <= nn->layers; ++l) {
        widest = nn->dims[l] > widest ? nn->dims[l] : widest;
    }
    return widest;
}

/* Scratch: the input of every layer and the logits, [B][d_l] each, which on the way back give their places to the
   gradients by them; then a tile of inputs, [widest][TILE], and one of outputs, [widest output][TILE]. */
static size_t values_floats(const gs_nn_t *nn, uint32_t batch)
{
    size_t sum = 0;
    for (uint32_t l = 0; l <= nn->layers; ++l) {
        sum += (size_t)batch * nn->dims[l];
    }
    return sum;
}

size_t gs_nn_scratch_floats(const gs_nn_t *nn, uint32_t batch)
{
    return values_floats(nn, batch) + TILE * ((size_t)gs_nn_widest(nn) + widest_output(nn));
}

void gs_nn_init(const gs_nn_t *nn, uint32_t init, const uint32_t seed[2], float *w)
{
    gs_rng_t rng;
    gs_rng_init(&rng, seed, GS_STREAM_INIT, 0, 0);
    uint32_t p = 0;
    for (uint32_t l = 0; l < nn->layers; ++l) {
        const uint32_t fan_in = nn->dims[l];
        const uint32_t fan_out = nn->dims[l + 1];
        const uint32_t fan = init == GS_INIT_GLOROT ? fan_in + fan_out : fan_in;
        const float limit = gs_sqrtf(6.0f / (float)fan);
        for (const uint32_t end = p + fan_in * fan_out; p < end; ++p) {
            w[p] = (gs_rng_unit(gs_rng_at(&rng, p)) * 2.0f - 1.0f) * limit;
        }
        for (const uint32_t end = p + fan_out; p < end; ++p) {
            w[p] = 0.0f;
        }
    }
}

/* One matrix product serves the forward pass and both parts of the backward pass:
   c[r][i] = start[r] + a(0, r) * b[0][i] + a(1, r) * b[1][i] + ..., every product and every sum rounded, in this order.
   a(k, r) = a[k * a_k + r * a_r]; rows of b are b_k apart, rows of c c_r. start is NULL for +0. */
typedef struct {
    float *c;
    const float *start;
    const float *a;
    const float *b;
    size_t c_r;
    size_t a_k;
    size_t a_r;
    size_t b_k;
    uint32_t terms;
} product_t;

/* Compute `rows` by `vectors` * LANES outputs, held in registers over all terms. */
INLINE void block(const product_t *p, uint32_t r, uint32_t i, const uint32_t rows, const uint32_t vectors)
{
    gs_lanes_t sum[8];
    UNROLL for (uint32_t y = 0; y < rows; ++y)
    {
        UNROLL for (uint32_t x = 0; x < vectors; ++x)
        {
            /* Subtracting +0 spreads a float over the lanes and keeps the sign of a zero. */
            sum[y * vectors + x] = (p->start ? p->start[r + y] : 0.0f) - (gs_lanes_t){0};
        }
    }
    const float *a = p->a + r * p->a_r;
    const float *b = p->b + i;
    for (uint32_t k = 0; k < p->terms; ++k, a += p->a_k, b += p->b_k) {
        UNROLL for (uint32_t x = 0; x < vectors; ++x)
        {
            gs_lanes_t right;
            memcpy(&right, b + x * LANES, sizeof right);
            UNROLL for (uint32_t y = 0; y < rows; ++y)
            {
                sum[y * vectors + x] = sum[y * vectors + x] + right * a[y * p->a_r];
            }
        }
    }
    UNROLL for (uint32_t y = 0; y < rows; ++y)
    {
        UNROLL for (uint32_t x = 0; x < vectors; ++x)
        {
            memcpy(p->c + (r + y) * p->c_r + i + x * LANES, &sum[y * vectors + x], sizeof(gs_lanes_t));
        }
    }
}

/* What no vector fits: one column at a time, four rows side by side. */
static void column(const product_t *p, uint32_t rows, uint32_t i)
{
    for (uint32_t r = 0; r < rows; r += 4) {
        const uint32_t here = rows - r < 4 ? rows - r : 4;
        float sum[4] = {0};
        for (uint32_t y = 0; y < here; ++y) {
            sum[y] = p->start ? p->start[r + y] : 0.0f;
        }
        for (uint32_t k = 0; k < p->terms; ++k) {
            const float right = p->b[k * p->b_k + i];
            for (uint32_t y = 0; y < here; ++y) {
                sum[y] = sum[y] + p->a[k * p->a_k + (r + y) * p->a_r] * right;
            }
        }
        for (uint32_t y = 0; y < here; ++y) {
            p->c[(r + y) * p->c_r + i] = sum[y];
        }
    }
}

static void multiply(const product_t *p, uint32_t rows, uint32_t columns)
{
    uint32_t i = 0;
    for (; i + 2 * LANES <= columns; i += 2 * LANES) {
        uint32_t r = 0;
        for (; r + 4 <= rows; r += 4) {
            block(p, r, i, 4, 2);
        }
        for (; r < rows; ++r) {
            block(p, r, i, 1, 2);
        }
    }
    for (; i + LANES <= columns; i += LANES) {
        uint32_t r = 0;
        for (; r + 8 <= rows; r += 8) {
            block(p, r, i, 8, 1);
        }
        for (; r + 2 <= rows; r += 2) {
            block(p, r, i, 2, 1);
        }
        for (; r < rows; ++r) {
            block(p, r, i, 1, 1);
        }
    }
    for (; i < columns; ++i) {
        column(p, rows, i);
    }
}

/* y[B][out] = W x + b for x[B][in], then ReLU where asked for. Samples stand side by side in `tiles`. */
static void dense(const float *weights, const float *bias, const float *x, float *y, uint32_t batch, uint32_t fan_in,
                  uint32_t fan_out, bool relu, float *tiles)
{
    float *outputs = tiles + (size_t)TILE * fan_in;
    for (uint32_t first = 0; first < batch; first += TILE) {
        const uint32_t here = batch - first < TILE ? batch - first : TILE;
        const uint32_t width = here > LANES ? TILE : LANES;
        for (uint32_t s = 0; s < width; ++s) {
            const float *sample = x + (size_t)(first + (s < here ? s : 0)) * fan_in;
            for (uint32_t i = 0; i < fan_in; ++i) {
                tiles[(size_t)i * width + s] = sample[i];
            }
        }
        const product_t product = {outputs, bias, weights, tiles, width, 1, fan_in, width, fan_in};
        multiply(&product, fan_out, width);
        for (uint32_t s = 0; s < here; ++s) {
            float *result = y + (size_t)(first + s) * fan_out;
            for (uint32_t o = 0; o < fan_out; ++o) {
                const float z = outputs[(size_t)o * width + s];
                result[o] = relu && !(z > 0.0f) ? 0.0f : z;
            }
        }
    }
}

static void read_sample(const gs_samples_t *samples, uint32_t row, uint32_t width, float *x)
{
    if (samples->type == GS_FEATURE_U8) {
        const uint8_t *bytes = samples->features + (size_t)row * width;
        for (uint32_t i = 0; i < width; ++i) {
            x[i] = (float)bytes[i] * samples->scale + samples->offset;
        }
        return;
    }
    const uint8_t *bytes = samples->features + (size_t)row * width * 4;
    for (uint32_t i = 0; i < width; ++i) {
        x[i] = gs_load_f32(bytes + 4 * (size_t)i);
    }
}

/* Compute the input of every layer and the logits of a batch; returns the logits, [B][classes]. */
static float *forward(const gs_nn_t *nn, const float *w, uint32_t batch, float *values, float *tiles)
{
    float *x = values;
    for (uint32_t l = 0; l < nn->layers; ++l) {
        const uint32_t fan_in = nn->dims[l];
        const uint32_t fan_out = nn->dims[l + 1];
        float *y = x + (size_t)batch * fan_in;
        const float *weights = w + gs_nn_offset(nn, l);
        dense(weights, weights + (size_t)fan_in * fan_out, x, y, batch, fan_in, fan_out, l + 1 < nn->layers, tiles);
        x = y;
    }
    return x;
}

/* Turn the inputs x[B][in] of a layer into the gradient by what came before their ReLU, from dz[B][out] (SPEC.md 3.6).
   A few samples at a time, which `tiles` holds until x is no longer needed. */
static void backward(const float *weights, const float *dz, float *x, uint32_t batch, uint32_t fan_in, uint32_t fan_out,
                     float *tiles)
{
    for (uint32_t first = 0; first < batch; first += TILE) {
        const uint32_t here = batch - first < TILE ? batch - first : TILE;
        const product_t product = {tiles, NULL, dz + (size_t)first * fan_out, weights, fan_in, 1, fan_out, fan_in, fan_out};
        multiply(&product, here, fan_in);
        float *inputs = x + (size_t)first * fan_in;
        for (size_t i = 0; i < (size_t)here * fan_in; ++i) {
            inputs[i] = inputs[i] > 0.0f ? tiles[i] : 0.0f;
        }
    }
}

/* Loss of one sample. z[classes] becomes its exponentials, *sum theirs, *best the predicted class (SPEC.md 3.5). */
static float softmax_loss(float *z, uint32_t classes, uint32_t label, float *sum, uint32_t *best)
{
    float top = z[0];
    *best = 0;
    for (uint32_t i = 1; i < classes; ++i) {
        if (z[i] > top) {
            top = z[i];
            *best = i;
        }
    }
    const float chosen = z[label];
    float total = 0.0f;
    for (uint32_t i = 0; i < classes; ++i) {
        z[i] = gs_expf(z[i] - top);
        total = total + z[i];
    }
    *sum = total;
    return gs_logf(total) - (chosen - top);
}

float gs_nn_gradient(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                     uint32_t batch, float *g, float *scratch)
{
    float *values = scratch;
    float *tiles = values + values_floats(nn, batch);
    for (uint32_t s = 0; s < batch; ++s) {
        read_sample(samples, rows[s], nn->dims[0], values + (size_t)s * nn->dims[0]);
    }
    float *logits = forward(nn, w, batch, values, tiles);

    const uint32_t classes = nn->dims[nn->layers];
    const float inv = 1.0f / (float)batch;
    float loss = 0.0f;
    for (uint32_t s = 0; s < batch; ++s) {
        float *z = logits + (size_t)s * classes;
        const uint32_t label = samples->labels[rows[s]];
        float sum;
        uint32_t best;
        loss = loss + softmax_loss(z, classes, label, &sum, &best);
        for (uint32_t i = 0; i < classes; ++i) {
            const float p = z[i] / sum;
            z[i] = (i == label ? p - 1.0f : p) * inv;
        }
    }

    float *dz = logits;
    for (uint32_t l = nn->layers; l-- > 0;) {
        const uint32_t fan_in = nn->dims[l];
        const uint32_t fan_out = nn->dims[l + 1];
        const uint32_t at = gs_nn_offset(nn, l);
        float *x = dz - (size_t)batch * fan_in;
        const product_t of_weights = {g + at, NULL, dz, x, fan_in, fan_out, 1, fan_in, batch};
        multiply(&of_weights, fan_out, fan_in);
        float *g_bias = g + at + (size_t)fan_in * fan_out;
        memset(g_bias, 0, fan_out * sizeof *g_bias);
        for (uint32_t s = 0; s < batch; ++s) {
            for (uint32_t o = 0; o < fan_out; ++o) {
                g_bias[o] = g_bias[o] + dz[(size_t)s * fan_out + o];
            }
        }
        if (l > 0) {
            backward(w + at, dz, x, batch, fan_in, fan_out, tiles);
        }
        dz = x;
    }
    return loss / (float)batch;
}

void gs_nn_update(uint32_t parameters, float *w, float *velocity, const float *g, float lr, float momentum,
                  float weight_decay)
{
    for (uint32_t p = 0; p < parameters; ++p) {
        float step = g[p];
        if (weight_decay != 0.0f) {
            step = step + weight_decay * w[p];
        }
        if (velocity) {
            step = momentum * velocity[p] + step;
            velocity[p] = step;
        }
        w[p] = w[p] - lr * step;
    }
}

void gs_nn_evaluate(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                    uint32_t first, uint32_t count, float *loss, uint32_t *correct, float *scratch)
{
    float *values = scratch;
    float *tiles = values + values_floats(nn, count);
    const uint32_t classes = nn->dims[nn->layers];
    for (uint32_t s = 0; s < count; ++s) {
        const uint32_t row = rows ? rows[s] : first + s;
        read_sample(samples, row, nn->dims[0], values + (size_t)s * nn->dims[0]);
    }
    float *logits = forward(nn, w, count, values, tiles);
    for (uint32_t s = 0; s < count; ++s) {
        const uint32_t label = samples->labels[rows ? rows[s] : first + s];
        float sum;
        uint32_t best;
        *loss = *loss + softmax_loss(logits + (size_t)s * classes, classes, label, &sum, &best);
        *correct += best == label;
    }
}
