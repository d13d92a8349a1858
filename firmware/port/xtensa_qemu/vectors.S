/* Where the processor goes at interrupts and faults. Their places within the table are the processor's (XEA2, as on the
   ESP32-S3); a table may be anywhere.

   Interrupts and faults of the program come to one place. Registers are kept on its stack, in the order of gs_trap_t:
   a0 to a15 at 0, then pc, ps, sar, cause, address from 64 on. No floating-point register is kept: nothing that runs
   here uses any. */

    .set TRAP_BYTES, 96
    .set PC, 64
    .set STATUS, 68
    .set SHIFT, 72
    .set CAUSE, 76
    .set ADDRESS, 80
    .set CAUSE_INTERRUPT, 4     /* EXCCAUSE of a level-1 interrupt */
    .set TRAP_DOUBLE, 65
    .set TRAP_INTERRUPT, 66

    .section .vectors, "ax"
    .global gs_vectors
gs_vectors:
    .org 0x180
    j of_other_level
    .org 0x1c0
    j of_other_level
    .org 0x200
    j of_other_level
    .org 0x240
    j of_other_level
    .org 0x300
    j of_program                /* kernel mode, which all of this is */
    .org 0x340
    j of_program
    .org 0x3c0
    j of_fault

    .text
    .literal_position
    .align 4
of_program:
    wsr a0, excsave1
    addi sp, sp, -TRAP_BYTES
    s32i a2, sp, 8
    s32i a3, sp, 12
    s32i a4, sp, 16
    s32i a5, sp, 20
    s32i a6, sp, 24
    s32i a7, sp, 28
    s32i a8, sp, 32
    s32i a9, sp, 36
    s32i a10, sp, 40
    s32i a11, sp, 44
    s32i a12, sp, 48
    s32i a13, sp, 52
    s32i a14, sp, 56
    s32i a15, sp, 60
    rsr a2, excsave1
    s32i a2, sp, 0
    addi a2, sp, TRAP_BYTES
    s32i a2, sp, 4
    rsr a2, epc1
    s32i a2, sp, PC
    rsr a2, ps
    s32i a2, sp, STATUS
    rsr a2, sar
    s32i a2, sp, SHIFT
    rsr a2, excvaddr
    s32i a2, sp, ADDRESS
    rsr a2, exccause
    s32i a2, sp, CAUSE
    bnei a2, CAUSE_INTERRUPT, 1f
    call0 gs_board_on_interrupt
    l32i a2, sp, SHIFT
    wsr a2, sar
    l32i a0, sp, 0
    l32i a2, sp, 8
    l32i a3, sp, 12
    l32i a4, sp, 16
    l32i a5, sp, 20
    l32i a6, sp, 24
    l32i a7, sp, 28
    l32i a8, sp, 32
    l32i a9, sp, 36
    l32i a10, sp, 40
    l32i a11, sp, 44
    l32i a12, sp, 48
    l32i a13, sp, 52
    l32i a14, sp, 56
    l32i a15, sp, 60
    addi sp, sp, TRAP_BYTES
    rfe
1:  mov a2, sp
    call0 gs_board_on_fault

/* The stack cannot be trusted: the registers go to a place of their own, and a new stack begins. */
of_fault:
    wsr a0, excsave1
    movi a0, trap
    s32i a2, a0, 8
    movi a2, TRAP_DOUBLE
    s32i a2, a0, CAUSE
    j 2f
of_other_level:
    wsr a0, excsave1
    movi a0, trap
    s32i a2, a0, 8
    movi a2, TRAP_INTERRUPT
    s32i a2, a0, CAUSE
2:  s32i sp, a0, 4
    rsr a2, excsave1
    s32i a2, a0, 0
    s32i a3, a0, 12
    s32i a4, a0, 16
    s32i a5, a0, 20
    s32i a6, a0, 24
    s32i a7, a0, 28
    s32i a8, a0, 32
    s32i a9, a0, 36
    s32i a10, a0, 40
    s32i a11, a0, 44
    s32i a12, a0, 48
    s32i a13, a0, 52
    s32i a14, a0, 56
    s32i a15, a0, 60
    rsr a2, depc
    s32i a2, a0, PC
    rsr a2, ps
    s32i a2, a0, STATUS
    rsr a2, sar
    s32i a2, a0, SHIFT
    rsr a2, excvaddr
    s32i a2, a0, ADDRESS
    movi sp, gs_stack_top
    mov a2, a0
    call0 gs_board_on_fault

    .section .bss.trap, "aw", @nobits
    .align 4
trap:
    .space TRAP_BYTES
