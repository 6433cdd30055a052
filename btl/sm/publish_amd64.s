//go:build !race

#include "textflag.h"

// func publish(word *uint64, v uint64)
//
// Stores of this architecture become visible in program order, so a plain store is a release. A
// store that is also a fence would wait here until this processor owns the cache line.
TEXT ·publish(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ word+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func publishAhead(word *uint64, v uint64, ahead unsafe.Pointer)
//
// The bytes are PREFETCHW (DX), which the assembler does not know. Processors without it treat it
// as a NOP.
TEXT ·publishAhead(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ word+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ ahead+16(FP), DX
	MOVQ CX, (AX)
	BYTE $0x0F; BYTE $0x0D; BYTE $0x0A
	RET
