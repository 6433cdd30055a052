package network

// Fluid returns the time in nanoseconds that bytes take from a start time, if they move at each
// moment at the sum of the rates: the ideal time of a message over several links. It samples the
// rates every step nanoseconds, and gives up after limit.
func Fluid(rates []func(now int64) float64, from int64, bytes float64, step, limit int64) int64 {
	for t := from; t < from+limit; t += step {
		rate := 0.0
		for _, r := range rates {
			rate += r(t)
		}
		moved := rate * float64(step) / 1e9
		if moved >= bytes {
			return t - from + int64(float64(step)*bytes/moved)
		}
		bytes -= moved
	}
	return limit
}
