package verbs

import "time"

// rnrTimer10us maps the 5 bits of MinRNRTimer to a delay in units of 10 µs (InfiniBand
// specification, table 45).
var rnrTimer10us = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer returns how long a requester waits after an RNR NAK with this timer code.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimer10us[code&31]) * 10 * time.Microsecond
}

// AckTimeout returns how long a requester waits for an acknowledgment before it retries:
// 4.096 µs · 2^code. It returns 0 for code 0, which disables the timeout. Devices may wait up to
// four times as long.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return time.Duration(4096) << (code & 31)
}
