/* Entry of a bare-metal program on QEMU's kc705-nommu: the floating-point unit, a painted stack, cleared memory, main. */

    .section .start, "ax"
    .global _start
    .literal_position
    .align 4
_start:
    movi a2, 1
    .byte 0x20, 0xe0, 0x13      /* wsr.cpenable a2 */
    rsync
    movi sp, gs_stack_top
    movi a2, gs_bss_start
    movi a3, gs_bss_end
    movi a4, 0
    j 2f
1:  s32i a4, a2, 0
    addi a2, a2, 4
2:  bltu a2, a3, 1b
    movi a2, gs_stack_bottom
    movi a4, 0x5aa5f00d         /* gs_board.c looks how much of it is left */
    j 4f
3:  s32i a4, a2, 0
    addi a2, a2, 4
4:  bltu a2, sp, 3b
    call0 main
    j gs_board_stop
