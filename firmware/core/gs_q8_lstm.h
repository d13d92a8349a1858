/* A layer of long short-term memory: int8 in and out, gates and cells of int16, with a state. */
#ifndef GS_Q8_LSTM_H
#define GS_Q8_LSTM_H

#include <stdint.h>

/* The argument of a gate's function, in units of 2^-12: two products, each brought to that scale and to int16. */
typedef struct {
    const int8_t *in_weights;     /* [cells][inputs] */
    const int8_t *hidden_weights; /* [cells][cells] */
    const int32_t *in_bias;       /* [cells], less the input's zero point times the sum of the row */
    const int32_t *hidden_bias;   /* the same for the hidden state, which has no bias of its own */
    int32_t in_multiplier;
    int32_t in_shift;
    int32_t hidden_multiplier;
    int32_t hidden_shift;
} gs_q8_gate_t;

typedef struct {
    gs_q8_gate_t input;
    gs_q8_gate_t forget;
    gs_q8_gate_t candidate; /* what the input gate lets into the cell */
    gs_q8_gate_t output;
    const uint16_t *sigmoid; /* [256]: the logistic function at i / 24, in units of 2^-16 */
    uint32_t sequences;
    uint32_t steps; /* at least 1 */
    uint32_t inputs;
    uint32_t cells;
    uint32_t sequence_stride; /* moments from one sequence to the next, in `in` and `out` */
    uint32_t step_stride;     /* moments from one step to the next */
    int32_t tanh_multiplier;  /* of a cell's value, so that with tanh_shift it comes in units of 1 / (3 * 2^12) */
    int32_t tanh_shift;       /* to the right */
    int32_t keep_multiplier;  /* of forget gate times cell */
    int32_t keep_shift;
    int32_t add_multiplier; /* of input gate times candidate */
    int32_t add_shift;
    int32_t out_multiplier; /* of output gate times tanh of the cell */
    int32_t out_shift;
    int32_t zero_point;
    int32_t clip; /* cells stay within +-clip; 32768 for no limit */
} gs_q8_lstm_t;

/* in[..][inputs] to out[..][cells]; hidden[sequences][cells] and cell[sequences][cells] are the state. */
void gs_q8_lstm(const gs_q8_lstm_t *p, const int8_t *in, int8_t *out, int8_t *hidden, int16_t *cell);

#endif
