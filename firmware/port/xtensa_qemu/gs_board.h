/* What QEMU's kc705-nommu has for a program without an operating system: a serial line and a way to stop. */
#ifndef GS_BOARD_H
#define GS_BOARD_H

#include <stdint.h>

/* Write one byte to the serial line; waits until there is room. */
void gs_board_put(uint8_t byte);

/* Processor cycles since start, modulo 2^32; under QEMU with `-icount` a count of instructions. */
uint32_t gs_board_cycles(void);

/* Power off. */
_Noreturn void gs_board_stop(void);

#endif
