package railsim

// pauses returns the schedule of ranks that lose their processors for a part of each period, at
// different times.
func pauses(length, period int64) func(rank int, now int64) int64 {
	return func(rank int, now int64) int64 {
		return max(length-(now+int64(rank)*period*3/8)%period, 0)
	}
}

// stopped returns the schedule of a rank that is stopped for a while.
func stopped(which int, from, to int64) func(rank int, now int64) int64 {
	return func(rank int, now int64) int64 {
		if rank != which || now < from {
			return 0
		}
		return max(to-now, 0)
	}
}
