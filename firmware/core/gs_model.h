/* The model: its layers, read from the words of an experiment image and checked (SPEC.md 3.1, 3.8, 11).
   Everything that later code needs to know of a layer is worked out once, here; nothing else looks at those words. */
#ifndef GS_MODEL_H
#define GS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gs_spec.h"

/* One axis of a layer. Those without windows have only `in` and `out`. */
typedef struct {
    uint32_t in;  /* positions that are read */
    uint32_t out; /* positions that are written */
    uint32_t kernel;
    uint32_t stride;
    uint32_t before; /* padding ahead of position 0 */
} gs_axis_t;

typedef struct {
    uint8_t kind; /* GS_KIND_... */
    bool relu;
    bool frozen;
    bool in_place; /* writes where it reads (FLATTEN and DROPOUT, if no ADD needs what was there) */
    gs_axis_t y;
    gs_axis_t x;
    uint32_t channels; /* of the input */
    uint32_t outputs;  /* channels of the output */
    uint32_t option;   /* CONV, NORM: groups; ADD: source; DROPOUT: rate24 */
    uint32_t weights;  /* numbers in W; b follows with `outputs`, if there is W */
    uint32_t at;       /* place of W in w, or in `given` if frozen. DROPOUT: the draws of a sample that come before */
    uint32_t value;    /* place of the output among the values of a sample */
} gs_layer_t;

typedef struct gs_model {
    uint32_t layers; /* 1..GS_LAYERS_MAX */
    gs_layer_t layer[GS_LAYERS_MAX];
    uint32_t inputs; /* numbers of a sample, d_0 */
    uint32_t classes;
    uint32_t parameters;  /* P: of layers that are not frozen */
    uint32_t given_count; /* numbers in `given` */
    const float *given;   /* in the image; whoever reads the image sets it */
    uint32_t dropped;     /* E: numbers of all DROPOUT layers' outputs together */
    uint32_t lowest;      /* the lowest layer with parameters that are not frozen: no gradient goes below it */
    uint32_t values;      /* floats for the input of a sample and the outputs of all layers */
    uint32_t input;       /* place of the input among them */
    bool perceptron;      /* dense layers only, none frozen, logits without ReLU */
} gs_model_t;

/* Read a model from the words of an image; `all_given` if the parameters of all layers stand in the image (GS_INIT_GIVEN).
   Returns the place (GS_CFG_...) of the first word that is wrong, GS_CFG_WORDS if none is. Does not set `given`. */
uint32_t gs_model_read(gs_model_t *model, const uint8_t *words, bool all_given);

/* Whether batches go through gs_perceptron.h, samples one by one through the other layers' modules. A build for one
   experiment knows, and the compiler drops the other way. */
static inline bool gs_model_is_perceptron(const gs_model_t *model)
{
#ifdef GS_ONLY_PERCEPTRON
    (void)model;
    return GS_ONLY_PERCEPTRON;
#else
    return model->perceptron;
#endif
}

/* Numbers of a layer's input and output. */
static inline uint32_t gs_layer_inputs(const gs_layer_t *layer)
{
    return layer->y.in * layer->x.in * layer->channels;
}

static inline uint32_t gs_layer_outputs(const gs_layer_t *layer)
{
    return layer->y.out * layer->x.out * layer->outputs;
}

/* Parameters of a layer: W and b. */
static inline uint32_t gs_layer_parameters(const gs_layer_t *layer)
{
    return layer->weights ? layer->weights + layer->outputs : 0;
}

/* Whether a layer has parameters that are learned. */
static inline bool gs_layer_learns(const gs_layer_t *layer)
{
    return layer->weights && !layer->frozen;
}

/* Whether every channel of a CONV has its own window and nothing else. */
static inline bool gs_layer_is_depthwise(const gs_layer_t *layer)
{
    return layer->option == layer->channels && layer->option == layer->outputs;
}

/* Numbers first <= n < end. */
typedef struct {
    uint32_t first;
    uint32_t end;
} gs_range_t;

/* Taps of the window at output position `out` that read something. */
static inline gs_range_t gs_axis_taps(const gs_axis_t *axis, uint32_t out)
{
    const uint32_t start = out * axis->stride;
    const uint32_t end = axis->in + axis->before - start;
    return (gs_range_t){start < axis->before ? axis->before - start : 0, end < axis->kernel ? end : axis->kernel};
}

/* Output positions where the window's tap reads something; may be empty. */
static inline gs_range_t gs_axis_outputs(const gs_axis_t *axis, uint32_t tap)
{
    const uint32_t first = tap < axis->before ? (axis->before - tap + axis->stride - 1) / axis->stride : 0;
    const uint32_t last = axis->in + axis->before; /* tap + position * stride stays below it */
    const uint32_t end = tap < last ? (last - tap - 1) / axis->stride + 1 : 0;
    return (gs_range_t){first, end < axis->out ? end : axis->out};
}

/* Output positions whose window reads input position `in`; may be empty. */
static inline gs_range_t gs_axis_readers(const gs_axis_t *axis, uint32_t in)
{
    const uint32_t at = in + axis->before;
    const uint32_t end = at / axis->stride + 1;
    return (gs_range_t){at < axis->kernel ? 0 : (at - axis->kernel) / axis->stride + 1,
                        end < axis->out ? end : axis->out};
}

#endif
