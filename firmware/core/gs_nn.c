#include "gs_nn.h"

#include <string.h>

#include "gs_conv.h"
#include "gs_dense.h"
#include "gs_depthwise.h"
#include "gs_math.h"
#include "gs_norm.h"
#include "gs_pool.h"

/* --- memory and initial parameters ------------------------------------------------------------------------------ */

static size_t layer_scratch_floats(const gs_layer_t *layer)
{
    switch (layer->kind) {
    case GS_KIND_CONV:
        return gs_layer_is_depthwise(layer) ? gs_depthwise_scratch_floats(layer) : gs_conv_scratch_floats(layer);
    case GS_KIND_NORM:
        return gs_norm_scratch_floats(layer);
    case GS_KIND_POOL_MAX:
    case GS_KIND_POOL_AVERAGE:
        return gs_pool_scratch_floats(layer);
    default:
        return 0;
    }
}

size_t gs_nn_scratch_floats(const gs_model_t *model, uint32_t batch)
{
    size_t most = model->classes; /* the exponentials of the logits */
    if (gs_model_is_perceptron(model)) {
        return gs_perceptron_scratch_floats(model, batch);
    }
    for (uint32_t l = 0; l < model->layers; ++l) {
        const size_t floats = layer_scratch_floats(&model->layer[l]);
        most = floats > most ? floats : most;
    }
    return model->values + most;
}

/* Set W and b of a layer whose first parameter is number `p` of the model. */
static void set_initial(const gs_layer_t *layer, uint32_t init, gs_rng_t *rng, uint32_t p, float *w)
{
    const uint32_t fan_in = layer->weights / layer->outputs;
    const uint32_t fan_out = layer->kind == GS_KIND_CONV
                                 ? layer->y.kernel * layer->x.kernel * (layer->outputs / layer->option)
                                 : layer->outputs;
    const uint32_t fan = init == GS_INIT_GLOROT ? fan_in + fan_out : fan_in;
    const float limit = gs_sqrtf(6.0f / (float)fan);
    for (uint32_t i = 0; i < layer->weights; ++i) {
        w[i] = layer->kind == GS_KIND_NORM ? 1.0f : (gs_rng_unit(gs_rng_at(rng, p + i)) * 2.0f - 1.0f) * limit;
    }
    memset(w + layer->weights, 0, layer->outputs * sizeof *w);
}

void gs_nn_init(const gs_model_t *model, uint32_t init, const uint32_t seed[2], float *w)
{
    gs_rng_t rng;
    uint32_t p = 0;
    gs_rng_init(&rng, seed, GS_STREAM_INIT, 0, 0);
    for (uint32_t l = 0; l < model->layers; ++l) {
        const gs_layer_t *layer = &model->layer[l];
        const uint32_t count = gs_layer_parameters(layer);
        if (gs_layer_learns(layer)) {
            float *own = w + layer->at;
            if (init == GS_INIT_GIVEN) {
                memcpy(own, model->given + p, count * sizeof *own);
            } else {
                set_initial(layer, init, &rng, p, own);
            }
        }
        p += count;
    }
}

/* --- the loss (SPEC.md 3.5) ------------------------------------------------------------------------------------- */

/* Loss of one sample. z[classes] becomes its exponentials, *sum theirs, *best the predicted class. */
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

/* Loss of one sample; z[classes] becomes the gradient of the batch's mean loss by it. */
static float softmax_gradient(float *z, uint32_t classes, uint32_t label, float inv)
{
    float sum;
    uint32_t best;
    const float loss = softmax_loss(z, classes, label, &sum, &best);
    for (uint32_t i = 0; i < classes; ++i) {
        const float p = z[i] / sum;
        z[i] = (i == label ? p - 1.0f : p) * inv;
    }
    return loss;
}

/* --- one sample through all layers ------------------------------------------------------------------------------ */

/* The draws of one sample (SPEC.md 3.4): those of layer l start at first + layer->at. */
typedef struct {
    gs_rng_t *rng;
    uint32_t first;
} drops_t;

/* A sample on its way. */
typedef struct {
    const gs_model_t *model;
    const float *w;
    const drops_t *drops; /* NULL: not in training */
    float *values;        /* the input, and the output of each layer; on the way back the gradients by them */
    float *scratch;
} pass_t;

/* W and b of a layer; NULL if it has none. */
static const float *parameters_of(const pass_t *pass, const gs_layer_t *layer)
{
    return layer->weights ? (layer->frozen ? pass->model->given : pass->w) + layer->at : NULL;
}

/* What layer l reads. */
static float *input_of(const pass_t *pass, uint32_t l)
{
    return pass->values + (l ? pass->model->layer[l - 1].value : pass->model->input);
}

/* DROPOUT of outputs, and of gradients by them; `to` may be `from`. */
static void drop(const gs_layer_t *layer, const drops_t *drops, const float *from, float *to)
{
    const float keep = 1.0f - (float)layer->option * 0x1p-24f;
    const float scale = 1.0f / keep;
    const uint32_t first = drops->first + layer->at;
    for (uint32_t e = 0; e < gs_layer_outputs(layer); ++e) {
        to[e] = gs_rng_chance(gs_rng_at(drops->rng, first + e), layer->option) ? 0.0f : from[e] * scale;
    }
}

static void forward_layer(const pass_t *pass, uint32_t l)
{
    const gs_layer_t *layer = &pass->model->layer[l];
    const float *w = parameters_of(pass, layer);
    const float *x = input_of(pass, l);
    float *z = pass->values + layer->value;
    const uint32_t count = gs_layer_outputs(layer);
    switch (layer->kind) {
    case GS_KIND_DENSE:
        gs_dense_forward(layer, w, x, z);
        break;
    case GS_KIND_CONV:
        (gs_layer_is_depthwise(layer) ? gs_depthwise_forward : gs_conv_forward)(layer, w, x, z, pass->scratch);
        break;
    case GS_KIND_NORM:
        gs_norm_forward(layer, w, x, z, pass->scratch);
        break;
    case GS_KIND_POOL_MAX:
    case GS_KIND_POOL_AVERAGE:
        gs_pool_forward(layer, x, z);
        break;
    case GS_KIND_ADD: {
        const float *other = pass->values + pass->model->layer[layer->option].value;
        for (uint32_t i = 0; i < count; ++i) {
            z[i] = x[i] + other[i];
        }
        break;
    }
    default: /* FLATTEN, DROPOUT */
        if (layer->kind == GS_KIND_DROPOUT && pass->drops) {
            drop(layer, pass->drops, x, z);
        } else if (!layer->in_place) {
            memcpy(z, x, count * sizeof *z);
        }
        break;
    }
    for (uint32_t i = 0; layer->relu && i < count; ++i) {
        z[i] = z[i] > 0.0f ? z[i] : 0.0f;
    }
}

/* Convert a sample and compute the output of every layer; returns the logits. */
static float *forward(const pass_t *pass, const gs_samples_t *samples, uint32_t row)
{
    const gs_model_t *model = pass->model;
    gs_samples_read(samples, (size_t)row * model->inputs, model->inputs, input_of(pass, 0));
    for (uint32_t l = 0; l < model->layers; ++l) {
        forward_layer(pass, l);
    }
    return pass->values + model->layer[model->layers - 1].value;
}

/* Where the gradient by the input of layer l goes. A layer that works in place stands for the one whose output it changes. */
static gs_below_t below_of(const pass_t *pass, uint32_t l, float *const others[])
{
    gs_below_t below = {input_of(pass, l), l ? others[l - 1] : NULL, false};
    while (l && pass->model->layer[l - 1].in_place) {
        --l;
    }
    below.relu = l && pass->model->layer[l - 1].relu;
    return below;
}

/* Take dz of layer l, in the place of its output: add its share to g, and pass it down. others[s] is the gradient by the
   output of layer s of the ADDs so far. */
static void backward_layer(const pass_t *pass, uint32_t l, float *g, float *others[])
{
    const gs_layer_t *layer = &pass->model->layer[l];
    const float *w = parameters_of(pass, layer);
    const float *x = input_of(pass, l);
    float *dz = pass->values + layer->value;
    float *own = gs_layer_learns(layer) ? g + layer->at : NULL;
    const gs_below_t place = below_of(pass, l, others);
    const gs_below_t *below = l > pass->model->lowest ? &place : NULL;
    switch (layer->kind) {
    case GS_KIND_DENSE:
        gs_dense_backward(layer, w, dz, x, own, below);
        return;
    case GS_KIND_CONV:
        (gs_layer_is_depthwise(layer) ? gs_depthwise_backward : gs_conv_backward)(layer, w, dz, x, own, below,
                                                                                  pass->scratch);
        return;
    case GS_KIND_NORM:
        gs_norm_backward(layer, w, dz, x, own, below, pass->scratch);
        return;
    case GS_KIND_POOL_MAX:
    case GS_KIND_POOL_AVERAGE:
        gs_pool_backward(layer, dz, x, below, pass->scratch);
        return;
    case GS_KIND_DROPOUT:
        drop(layer, pass->drops, dz, dz);
        break;
    default:
        break;
    }
    const uint32_t count = gs_layer_outputs(layer);
    if (!layer->in_place) {
        gs_below_take(below, 0, dz, count);
    }
    if (layer->kind == GS_KIND_ADD && layer->option >= pass->model->lowest) {
        /* From here on, what was the output of ADD holds what is known of the gradient by its source. */
        const float *higher = others[layer->option];
        for (uint32_t i = 0; higher && i < count; ++i) {
            dz[i] = higher[i] + dz[i];
        }
        others[layer->option] = dz;
    }
}

/* Add one sample's share to the gradient; returns its loss. */
static float sample_gradient(const pass_t *pass, const gs_samples_t *samples, uint32_t row, float inv, float *g)
{
    const gs_model_t *model = pass->model;
    float *others[GS_LAYERS_MAX] = {NULL};
    const float *logits = forward(pass, samples, row);
    memcpy(pass->scratch, logits, model->classes * sizeof *logits);
    const float loss = softmax_gradient(pass->scratch, model->classes, samples->labels[row], inv);
    const gs_below_t last = below_of(pass, model->layers, others);
    gs_below_take(&last, 0, pass->scratch, model->classes);
    for (uint32_t l = model->layers; l-- > model->lowest;) {
        backward_layer(pass, l, g, others);
    }
    return loss;
}

/* --- batches ---------------------------------------------------------------------------------------------------- */

float gs_nn_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, gs_rng_t *dropout,
                     uint32_t first_draw, float *g, float *scratch)
{
    const float inv = 1.0f / (float)batch->count;
    float loss = 0.0f;
    if (gs_model_is_perceptron(model)) {
        float *z = gs_perceptron_forward(model, w, batch, scratch);
        for (uint32_t s = 0; s < batch->count; ++s, z += model->classes) {
            const uint32_t label = batch->samples->labels[gs_batch_row(batch, s)];
            loss = loss + softmax_gradient(z, model->classes, label, inv);
        }
        gs_perceptron_backward(model, w, batch, g, scratch);
        return loss / (float)batch->count;
    }
    memset(g, 0, model->parameters * sizeof *g);
    drops_t drops = {dropout, first_draw};
    const pass_t pass = {model, w, &drops, scratch, scratch + model->values};
    for (uint32_t s = 0; s < batch->count; ++s, drops.first += model->dropped) {
        loss = loss + sample_gradient(&pass, batch->samples, gs_batch_row(batch, s), inv, g);
    }
    return loss / (float)batch->count;
}

void gs_nn_evaluate(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *loss, uint32_t *correct,
                    float *scratch)
{
    const pass_t pass = {model, w, NULL, scratch, scratch + model->values};
    float *z = gs_model_is_perceptron(model) ? gs_perceptron_forward(model, w, batch, scratch) : NULL;
    for (uint32_t s = 0; s < batch->count; ++s) {
        const uint32_t row = gs_batch_row(batch, s);
        const uint32_t label = batch->samples->labels[row];
        float sum;
        uint32_t best;
        if (!gs_model_is_perceptron(model)) {
            z = forward(&pass, batch->samples, row);
        }
        *loss = *loss + softmax_loss(z, model->classes, label, &sum, &best);
        *correct += best == label;
        z += model->classes;
    }
}
