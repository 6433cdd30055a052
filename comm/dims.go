package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/internal/calls"
)

// Dims divides ranks among the dimensions of a grid (MPI 4.1, section 8.5.2). It fills in the
// entries of dims that are zero, in falling order, so that the product of all entries is ranks. It
// makes the first of them as small as possible, then the second, and so on: 16 in three dimensions
// is 4, 2, 2. Other entries do not change, and their product must divide ranks. The error is
// ErrCount if ranks is not positive, if an entry is negative, or if the product does not divide
// ranks.
func Dims(ranks int, dims []int) error {
	if ranks < 1 {
		return fmt.Errorf("%v: %w: %d ranks", calls.Dims, ErrCount, ranks)
	}
	rest := ranks // to divide among the free dimensions
	var free []*int
	for i, n := range dims {
		switch {
		case n < 0:
			return fmt.Errorf("%v: %w: dimension %d is %d", calls.Dims, ErrCount, i, n)
		case n == 0:
			free = append(free, &dims[i])
		case rest%n != 0:
			return fmt.Errorf("%v: %w: the product of the given dimensions does not divide %d", calls.Dims, ErrCount, ranks)
		default:
			rest /= n
		}
	}
	if len(free) == 0 {
		return nil
	}
	for i, n := range evenFactors(rest, len(free)) {
		*free[i] = n
	}
	return nil
}

// evenFactors divides n into k factors, in falling order.
func evenFactors(n, k int) []int {
	factors := make([]int, 0, k)
	divisors := divisorsOf(n)
	limit := n // for the next factor
	for ; k > 1; k-- {
		for _, d := range divisors {
			if n%d == 0 && d <= limit && newFitter(d, divisors).fits(n/d, k-1) {
				factors = append(factors, d)
				n, limit = n/d, d
				break
			}
		}
	}
	return append(factors, n)
}

// fitter decides whether numbers are products of factors up to a limit.
type fitter struct {
	limit    int
	divisors []int           // of the whole, rising
	no       map[[2]int]bool // arguments for which fits is false
}

func newFitter(limit int, divisors []int) *fitter {
	return &fitter{limit, divisors, make(map[[2]int]bool)}
}

// fits reports whether n is a product of k factors, none of them above the limit.
func (f *fitter) fits(n, k int) bool {
	switch {
	case n <= f.limit:
		return true
	case k <= 1 || !isWithin(n, f.limit, k):
		return false
	case f.no[[2]int{n, k}]:
		return false
	}
	for i := len(f.divisors) - 1; i >= 0; i-- {
		if d := f.divisors[i]; d > 1 && d <= f.limit && n%d == 0 && f.fits(n/d, k-1) {
			return true
		}
	}
	f.no[[2]int{n, k}] = true
	return false
}

// isWithin reports whether n is at most limit to the power of k.
func isWithin(n, limit, k int) bool {
	for ; k > 0 && n > 1; k-- {
		n = (n + limit - 1) / limit
	}
	return n <= 1
}

// divisorsOf lists the divisors of n, rising.
func divisorsOf(n int) []int {
	var low, high []int
	for d := 1; d <= n/d; d++ {
		if n%d != 0 {
			continue
		}
		low = append(low, d)
		if d != n/d {
			high = append(high, n/d)
		}
	}
	for i := len(high) - 1; i >= 0; i-- {
		low = append(low, high[i])
	}
	return low
}
