#include "gs_lr.h"

#include "gs_math.h"

void gs_lr_init(gs_lr_t *rate, const gs_config_t *config)
{
    *rate = (gs_lr_t){.lr = config->lr};
}

static void divide(gs_lr_t *rate, float factor, float floor)
{
    const float lr = rate->lr / factor;
    rate->lr = lr > floor ? lr : floor;
}

void gs_lr_begin_round(gs_lr_t *rate, const gs_config_t *config, uint32_t round)
{
    if (!(config->lr_policy & GS_LR_ADASTAIR)) {
        return;
    }
    while (rate->stairs_done < config->stair_count && config->stair_at[rate->stairs_done] <= round) {
        divide(rate, config->stair_factor, config->lr_floor);
        ++rate->stairs_done;
    }
}

static float reference(const gs_lr_t *rate, uint32_t kind)
{
    switch (kind) {
    case GS_REFERENCE_MEAN:
        return rate->total / (float)rate->count;
    case GS_REFERENCE_BEST:
        return rate->best;
    default:
        return rate->ema;
    }
}

void gs_lr_see_loss(gs_lr_t *rate, const gs_config_t *config, float loss)
{
    if (!(config->lr_policy & GS_LR_ADALOSS)) {
        return;
    }
    const bool finite = gs_is_finite(loss);
    if (finite && (rate->count == 0 || loss < reference(rate, config->loss_reference))) {
        rate->bad = 0;
    } else {
        ++rate->bad;
        if (rate->patience_index < config->loss_count && rate->bad > config->loss_patience[rate->patience_index]) {
            divide(rate, config->loss_factor, config->lr_floor);
            rate->bad = 0;
            ++rate->patience_index;
        }
    }
    if (!finite) {
        return;
    }
    rate->total = rate->total + loss;
    rate->best = rate->count > 0 && rate->best < loss ? rate->best : loss;
    rate->ema = rate->count > 0 ? rate->ema + config->loss_ema * (loss - rate->ema) : loss;
    ++rate->count;
}
