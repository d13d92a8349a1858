/* What a node needs of a machine without an operating system; here of QEMU's kc705-nommu: a serial line, a clock, sleep.

   One thread of control and its interrupts; nothing may be called from a fault but gs_board_put and gs_board_halt. */
#ifndef GS_BOARD_H
#define GS_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Take charge of traps and interrupts and begin to receive and to count ticks. */
void gs_board_init(void);

/* Write one byte to the serial line; waits until there is room. Needs no gs_board_init. */
void gs_board_put(uint8_t byte);

/* Return the next byte that was received, or -1. Where the line has flow control, nothing is lost. */
int gs_board_get(void);

/* Sleep until a byte has come or a tick has passed since the last call. */
void gs_board_wait(void);

/* Ticks since gs_board_init, about one a second. */
uint32_t gs_board_ticks(void);

/* Processor cycles since start, modulo 2^32; under QEMU with `-icount` a count of instructions. */
uint32_t gs_board_cycles(void);

/* Most bytes of stack that were ever in use; walks over those that were not. */
size_t gs_board_stack_used(void);

/* Whether the stack ever reached its end, and perhaps went beyond. */
bool gs_board_stack_is_used_up(void);

/* Bytes of stack there are. */
size_t gs_board_stack_bytes(void);

/* The memory that is left, from *begin on, aligned to 16 bytes. Returns its bytes. */
size_t gs_board_memory(uint8_t **begin);

/* Power off. */
_Noreturn void gs_board_stop(void);

/* Stay as it is, asleep, for whoever wants to look. */
_Noreturn void gs_board_halt(void);

/* The processor at a fault. Offsets are written out in vectors.S. */
typedef struct {
    uint32_t a[16];
    uint32_t pc;
    uint32_t ps;
    uint32_t sar;
    uint32_t cause; /* EXCCAUSE; GS_TRAP_DOUBLE and GS_TRAP_INTERRUPT are not the processor's */
    uint32_t address;
} gs_trap_t;

#define GS_TRAP_STACK 64u     /* the stack is used up */
#define GS_TRAP_DOUBLE 65u    /* a fault within a fault */
#define GS_TRAP_INTERRUPT 66u /* of a level that nothing here uses */

/* Called at a fault: the program's to define. */
_Noreturn void gs_board_on_fault(const gs_trap_t *trap);

#endif
