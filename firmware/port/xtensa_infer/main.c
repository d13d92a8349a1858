/* Runs a generated model on a bare machine over inputs that were compiled in, and writes to the serial line, for each:
   four bytes, how many cycles it took, and the output. At a fault it writes "fault" and its cause, and stops.

   "job.h" (twin_emu/inference.py) includes the model's header and defines JOB_INVOKE(in, out, arena), JOB_COUNT,
   JOB_IN_BYTES, JOB_OUT_BYTES, JOB_ARENA_BYTES, JOB_OFFSET and the array job_inputs. */
#include "gs_board.h"
#include "job.h"

/* Buffers of the caller's may begin anywhere: JOB_OFFSET says where these do. */
static _Alignas(16) int8_t in[JOB_IN_BYTES + JOB_OFFSET];
static _Alignas(16) int8_t out[JOB_OUT_BYTES + JOB_OFFSET];
static _Alignas(16) uint8_t arena[JOB_ARENA_BYTES];

static void put_bytes(const void *data, size_t len)
{
    const uint8_t *bytes = data;
    while (len-- > 0) {
        gs_board_put(*bytes++);
    }
}

_Noreturn void gs_board_on_fault(const gs_trap_t *trap)
{
    put_bytes("fault", 5);
    put_bytes(&trap->cause, sizeof trap->cause);
    gs_board_stop();
}

int main(void)
{
    gs_board_init();
    for (uint32_t i = 0; i < JOB_COUNT; ++i) {
        for (uint32_t k = 0; k < JOB_IN_BYTES; ++k) {
            in[JOB_OFFSET + k] = job_inputs[i][k];
        }
        const uint32_t begun = gs_board_cycles();
        JOB_INVOKE(in + JOB_OFFSET, out + JOB_OFFSET, arena);
        const uint32_t cycles = gs_board_cycles() - begun;
        put_bytes(&cycles, sizeof cycles);
        put_bytes(out + JOB_OFFSET, JOB_OUT_BYTES);
    }
    return 0;
}
