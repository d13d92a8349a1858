#include "gs_units.h"

#include <string.h>

#include "gs_math.h"

enum { WALK_RANGE, WALK_MASK, WALK_LIST, WALK_INDEX };

uint32_t gs_units_count(const gs_nn_t *nn, uint32_t kind)
{
    uint32_t count = 0;
    switch (kind) {
    case GS_UNIT_PARAMETER:
        return gs_nn_parameters(nn);
    case GS_UNIT_LAYER:
        return nn->layers;
    default:
        for (uint32_t l = 0; l < nn->layers; ++l) {
            count += kind == GS_UNIT_KERNEL ? nn->dims[l + 1] : nn->dims[l] + 1;
        }
        return count;
    }
}

gs_unit_t gs_units_get(const gs_nn_t *nn, uint32_t kind, uint32_t number)
{
    if (kind == GS_UNIT_PARAMETER) {
        return (gs_unit_t){number, 1, 1, UINT32_MAX};
    }
    uint32_t at = 0;
    for (uint32_t l = 0;; ++l) {
        const uint32_t fan_in = nn->dims[l];
        const uint32_t fan_out = nn->dims[l + 1];
        const uint32_t bias = at + fan_in * fan_out;
        const uint32_t here = kind == GS_UNIT_LAYER ? 1 : kind == GS_UNIT_KERNEL ? fan_out : fan_in + 1;
        if (number >= here) {
            number -= here;
            at = bias + fan_out;
            continue;
        }
        if (kind == GS_UNIT_LAYER) {
            return (gs_unit_t){at, 1, (fan_in + 1) * fan_out, UINT32_MAX};
        }
        if (kind == GS_UNIT_KERNEL) {
            return (gs_unit_t){at + number * fan_in, 1, fan_in, bias + number};
        }
        if (number == fan_in) {
            return (gs_unit_t){bias, 1, fan_out, UINT32_MAX};
        }
        return (gs_unit_t){at + number, fan_in, fan_out, UINT32_MAX};
    }
}

uint32_t gs_units_largest(const gs_nn_t *nn, uint32_t kind)
{
    uint32_t largest = 1;
    if (kind == GS_UNIT_PARAMETER) {
        return largest;
    }
    const uint32_t count = gs_units_count(nn, kind);
    for (uint32_t number = 0; number < count; ++number) {
        const gs_unit_t unit = gs_units_get(nn, kind, number);
        largest = gs_unit_size(&unit) > largest ? gs_unit_size(&unit) : largest;
    }
    return largest;
}

float gs_units_importance(const gs_unit_t *unit, const float *scores, uint32_t reduce)
{
    const uint32_t size = gs_unit_size(unit);
    if (size == 1) {
        return scores[unit->count ? unit->first : unit->extra];
    }
    float sum = 0.0f;
    for (uint32_t i = 0; i < size; ++i) {
        const float score = scores[i < unit->count ? unit->first + i * unit->stride : unit->extra];
        sum = sum + (reduce == GS_REDUCE_L2 ? score * score : score);
    }
    return reduce == GS_REDUCE_L2 ? gs_sqrtf(sum) : sum / (float)size;
}

/* Whether a stands before b. The bits of floats that are not negative are ordered as the floats are. */
static bool before(uint32_t a, uint32_t b, const float *keys)
{
    if (keys) {
        const uint32_t key_a = gs_bits_of(keys[a]);
        const uint32_t key_b = gs_bits_of(keys[b]);
        if (key_a != key_b) {
            return key_a > key_b;
        }
    }
    return a < b;
}

static void sift_down(uint32_t *numbers, uint32_t root, uint32_t count, const float *keys)
{
    const uint32_t moved = numbers[root];
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && before(numbers[child], numbers[child + 1], keys)) {
            ++child;
        }
        if (!before(moved, numbers[child], keys)) {
            break;
        }
        numbers[root] = numbers[child];
    }
    numbers[root] = moved;
}

void gs_units_sort(uint32_t *numbers, uint32_t count, const float *keys)
{
    /* Heap sort: in place, no recursion, n log n whatever comes. */
    for (uint32_t root = count / 2; root-- > 0;) {
        sift_down(numbers, root, count, keys);
    }
    for (uint32_t end = count; end-- > 1;) {
        const uint32_t last = numbers[end];
        numbers[end] = numbers[0];
        numbers[0] = last;
        sift_down(numbers, 0, end, keys);
    }
}

static void begin(gs_walk_t *walk, uint32_t source, uint32_t next, uint32_t end)
{
    walk->source = source;
    walk->next = next;
    walk->end = end;
    walk->unit = (gs_unit_t){0, 1, 0, UINT32_MAX};
}

void gs_walk_range(gs_walk_t *walk, uint32_t first, uint32_t end)
{
    begin(walk, WALK_RANGE, first, end);
}

void gs_walk_mask(gs_walk_t *walk, uint32_t end, const gs_rng_t *rng, uint32_t ratio24)
{
    begin(walk, WALK_MASK, 0, end);
    walk->rng = *rng;
    walk->ratio24 = ratio24;
}

void gs_walk_list(gs_walk_t *walk, const gs_nn_t *nn, uint32_t kind, const uint32_t *list, uint32_t count)
{
    begin(walk, WALK_LIST, 0, count);
    walk->nn = nn;
    walk->kind = kind;
    walk->list = list;
}

void gs_walk_index(gs_walk_t *walk, const gs_nn_t *nn, uint32_t kind, uint8_t coding, const uint8_t *data, size_t len)
{
    begin(walk, WALK_INDEX, 0, 0);
    walk->nn = nn;
    walk->kind = kind;
    gs_index_init(&walk->index, coding, data, len, gs_units_count(nn, kind));
}

static bool next_unit(gs_walk_t *walk)
{
    uint32_t number;
    if (walk->source == WALK_LIST) {
        if (walk->next == walk->end) {
            return false;
        }
        number = walk->list[walk->next++];
    } else if (!gs_index_next(&walk->index, &number)) {
        return false;
    }
    walk->unit = gs_units_get(walk->nn, walk->kind, number);
    return true;
}

bool gs_walk_next(gs_walk_t *walk, uint32_t *coordinate)
{
    if (walk->source == WALK_RANGE) {
        *coordinate = walk->next;
        return walk->next < walk->end && ++walk->next;
    }
    if (walk->source == WALK_MASK) {
        while (walk->next < walk->end && !gs_rng_chance(gs_rng_at(&walk->rng, walk->next), walk->ratio24)) {
            ++walk->next;
        }
        *coordinate = walk->next;
        return walk->next < walk->end && ++walk->next;
    }
    gs_unit_t *unit = &walk->unit;
    if (unit->count == 0 && unit->extra == UINT32_MAX && !next_unit(walk)) {
        return false;
    }
    if (unit->count) {
        *coordinate = unit->first;
        unit->first += unit->stride;
        --unit->count;
    } else {
        *coordinate = unit->extra;
        unit->extra = UINT32_MAX;
    }
    return true;
}

bool gs_walk_ok(const gs_walk_t *walk)
{
    return walk->source != WALK_INDEX || walk->index.ok;
}
