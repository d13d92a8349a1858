#include "gs_board.h"

/* A 16550 with registers of 32 bits, and the register that resets the board (QEMU is told to stop instead). */
#define UART(number) (*(volatile uint32_t *)(0x9D050020u + 4u * (number)))
#define UART_DATA UART(0)
#define UART_INTERRUPTS UART(1)
#define UART_FIFO UART(2)
#define UART_LINE_STATUS UART(5)
#define LINE_STATUS_BYTE 0x01u
#define LINE_STATUS_ROOM 0x20u
#define INTERRUPT_RECEIVED 0x01u
#define INTERRUPT_ROOM 0x02u
#define FIFO_OF_16 0xC1u /* interrupt at 14 bytes, or when the line has paused */
#define BOARD_RESET (*(volatile uint32_t *)0x9D020010u)
#define RESET_VALUE 0xDEADu

#define INTERRUPT_UART (1u << 0)
#define INTERRUPT_TIMER (1u << 6)
#define TICK_CYCLES 40000000u /* QEMU's clock of this processor: 40 MHz */

#define RING_BYTES 4096u /* a power of two */
#define STACK_PAINT 0x5AA5F00Du
#define PS_EXCM 0x10u

/* From the linker script. */
extern uint32_t gs_stack_bottom[];
extern uint32_t gs_stack_top[];
extern uint8_t gs_memory_begin[];
extern uint8_t gs_memory_end[];
/* From vectors.S. */
extern const uint8_t gs_vectors[];

static uint8_t ring[RING_BYTES];
static volatile uint32_t ring_in; /* bytes ever put in and taken out, modulo 2^32 */
static volatile uint32_t ring_out;
static volatile bool ring_full; /* no interrupt at received bytes until there is room */
static bool is_set_up;
static volatile uint32_t ticks;

#define READ_REGISTER(name, value) __asm__ volatile("rsr %0, " name : "=a"(value))
#define WRITE_REGISTER(name, value) __asm__ volatile("wsr %0, " name "\n rsync" ::"a"(value) : "memory")

/* Say which of the line's events interrupt. */
static void listen_for(uint32_t more)
{
    UART_INTERRUPTS = (ring_full ? 0 : INTERRUPT_RECEIVED) | more;
}

static bool has_room(void)
{
    return (UART_LINE_STATUS & LINE_STATUS_ROOM) != 0;
}

static uint32_t close_interrupts(void)
{
    uint32_t before;
    __asm__ volatile("rsil %0, 15" : "=a"(before)::"memory");
    return before;
}

static void open_interrupts(uint32_t before)
{
    WRITE_REGISTER("ps", before);
}

/* Nothing may come between a look and the sleep: `waiti` itself lets interrupts in again. */
static void sleep_until_interrupt(void)
{
    __asm__ volatile("waiti 0" ::: "memory");
}

void gs_board_put(uint8_t byte)
{
    if (is_set_up && !has_room()) {
        const uint32_t before = close_interrupts();
        /* In a fault interrupts stay off, and so does sleep. */
        while ((before & PS_EXCM) == 0 && !has_room()) {
            listen_for(INTERRUPT_ROOM);
            sleep_until_interrupt();
            (void)close_interrupts();
        }
        open_interrupts(before);
    }
    while (!has_room()) {
    }
    UART_DATA = byte;
}

int gs_board_get(void)
{
    if (ring_in == ring_out) {
        return -1;
    }
    const uint8_t byte = ring[ring_out % RING_BYTES];
    ring_out = ring_out + 1;
    if (ring_full) {
        ring_full = false;
        listen_for(0);
    }
    return byte;
}

uint32_t gs_board_cycles(void)
{
    uint32_t cycles;
    READ_REGISTER("ccount", cycles);
    return cycles;
}

uint32_t gs_board_ticks(void)
{
    return ticks;
}

/* The line has flow control: what is not read waits at the sender. */
static void receive(void)
{
    while (UART_LINE_STATUS & LINE_STATUS_BYTE) {
        if (ring_in - ring_out == RING_BYTES) {
            ring_full = true;
            return;
        }
        ring[ring_in % RING_BYTES] = (uint8_t)UART_DATA;
        ring_in = ring_in + 1;
    }
}

/* Called by vectors.S; interrupts are off. */
void gs_board_on_interrupt(void);
void gs_board_on_interrupt(void)
{
    uint32_t pending;
    READ_REGISTER("interrupt", pending);
    if (pending & INTERRUPT_UART) {
        receive();
        listen_for(0); /* who waits for room looks himself, and asks again */
    }
    if (pending & INTERRUPT_TIMER) {
        ticks = ticks + 1;
        WRITE_REGISTER("ccompare0", gs_board_cycles() + TICK_CYCLES); /* this also takes the interrupt back */
    }
}

void gs_board_init(void)
{
    UART_FIFO = FIFO_OF_16;
    listen_for(0);
    is_set_up = true;
    WRITE_REGISTER("vecbase", (uint32_t)(uintptr_t)gs_vectors);
    WRITE_REGISTER("ccompare0", gs_board_cycles() + TICK_CYCLES);
    WRITE_REGISTER("intenable", INTERRUPT_UART | INTERRUPT_TIMER);
    WRITE_REGISTER("ps", 0u); /* no windows, kernel mode, all interrupts that are enabled */
}

void gs_board_wait(void)
{
    static uint32_t seen;
    const uint32_t before = close_interrupts();
    if (ring_in == ring_out && ticks == seen) {
        sleep_until_interrupt();
    }
    open_interrupts(before);
    seen = ticks;
}

size_t gs_board_stack_bytes(void)
{
    return (size_t)((const uint8_t *)gs_stack_top - (const uint8_t *)gs_stack_bottom);
}

/* start.S painted all of it. */
size_t gs_board_stack_used(void)
{
    const uint32_t *lowest = gs_stack_bottom;
    while (lowest < gs_stack_top && *lowest == STACK_PAINT) {
        ++lowest;
    }
    return (size_t)((const uint8_t *)gs_stack_top - (const uint8_t *)lowest);
}

bool gs_board_stack_is_used_up(void)
{
    return *gs_stack_bottom != STACK_PAINT;
}

size_t gs_board_memory(uint8_t **begin)
{
    *begin = gs_memory_begin;
    return (size_t)(gs_memory_end - gs_memory_begin);
}

void gs_board_stop(void)
{
    BOARD_RESET = RESET_VALUE;
    gs_board_halt();
}

void gs_board_halt(void)
{
    for (;;) {
        __asm__ volatile("waiti 15");
    }
}
