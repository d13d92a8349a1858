/* Does what a program must not, by the number in KIND, and prints what the board reports of it. */
#include "gs_board.h"

static void print(const char *name, uint32_t value)
{
    while (*name) {
        gs_board_put((uint8_t)*name++);
    }
    for (int shift = 28; shift >= 0; shift -= 4) {
        gs_board_put((uint8_t) "0123456789abcdef"[(value >> shift) & 15]);
    }
    gs_board_put('\n');
}

_Noreturn void gs_board_on_fault(const gs_trap_t *trap)
{
    print("cause ", trap->cause);
    print("pc ", trap->pc);
    print("address ", trap->address);
    print("a2 ", trap->a[2]);
    print("a12 ", trap->a[12]);
    gs_board_stop();
}

static void misbehave(void)
{
#if KIND == 0 /* an instruction that is none */
    __asm__ volatile("movi a2, 0x222\n movi a12, 0x777\n .global gs_guilty\ngs_guilty: .byte 0, 0, 0" ::: "a2", "a12");
#elif KIND == 1 /* a word at an odd address */
    __asm__ volatile("movi a2, 0x221\n movi a12, 0x777\n .global gs_guilty\ngs_guilty: l32i a3, a2, 0" ::
                         : "a2", "a3", "a12");
#elif KIND == 2 /* a stack that points nowhere, when an interrupt comes */
    __asm__ volatile("movi a2, 0x222\n movi a12, 0x777\n movi a1, 3\n .global gs_guilty\ngs_guilty: .byte 0, 0, 0");
#elif KIND == 4 /* a million instructions */
    const uint32_t begun = gs_board_cycles();
    __asm__ volatile("movi a2, 500000\n1: addi a2, a2, -1\n bnez a2, 1b" ::: "a2");
    print("cycles ", gs_board_cycles() - begun);
    gs_board_stop();
#else           /* ticks come, and change nothing that they should not */
    uint32_t sum = 0;
    const uint32_t begun = gs_board_ticks();
    for (uint32_t i = 0; gs_board_ticks() - begun < 1; ++i) {
        sum += (i << (i & 7)) ^ (i >> (i & 3));
        __asm__ volatile("" : "+a"(sum)); /* so that the compiler does not see that nothing remains */
        sum -= (i << (i & 7)) ^ (i >> (i & 3));
    }
    print("sum ", sum);
    print("stack ", (uint32_t)(gs_board_stack_used() < gs_board_stack_bytes() / 4));
    gs_board_stop();
#endif
}

int main(void)
{
    gs_board_init();
    misbehave();
    return 0;
}
