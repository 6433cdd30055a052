package verbs

import "time"

// rnrTimer is what the 5 bits of MinRNRTimer mean, in units of 10 µs (InfiniBand Architecture Specification, volume 1, table 45).
var rnrTimer = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer is how long a requester waits that was told so by an RNR NAK.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimer[code&31]) * 10 * time.Microsecond
}

// AckTimeout is how long a requester waits for an answer before it tries again: 4.096 µs · 2^code; 0 for code 0, which
// means for ever. Devices may take up to four times as long.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return time.Duration(4096) << (code & 31)
}
