//go:build !race

#include "textflag.h"

// func publish(word *uint64, v uint64)
//
// Stores of this architecture become visible in program order, so a plain one is a
// release. One that also is a fence would wait here until the line is ours.
TEXT ·publish(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ word+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET
