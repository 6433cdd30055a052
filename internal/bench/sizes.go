package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	maxBytes = 1 << 30 // of one message
	maxSizes = 256     // in one run
)

// parseSize reads a number of bytes: 4096, 64K, 1M, 1G (powers of 1024).
func parseSize(text string) (int, error) {
	digits, shift := text, 0
	if text != "" {
		if i := strings.IndexByte("KMG", text[len(text)-1]&^0x20); i >= 0 {
			digits, shift = text[:len(text)-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || n > math.MaxInt>>shift {
		return 0, fmt.Errorf("%q is not a size such as 4096, 64K or 1M", text)
	}
	return int(n) << shift, nil
}

// span is the range of sizes that a benchmark goes through.
type span struct{ min, max int }

// parseSpan reads MIN:MAX, MIN:, :MAX, or one size. Missing parts come from def.
func parseSpan(text string, def span) (span, error) {
	s := def
	lo, hi, ranged := strings.Cut(text, ":")
	var err error
	if lo != "" || !ranged {
		s.min, err = parseSize(lo)
	}
	if !ranged {
		s.max = s.min
	} else if err == nil && hi != "" {
		s.max, err = parseSize(hi)
	}
	switch {
	case err != nil:
		return span{}, err
	case s.max > maxBytes:
		return span{}, fmt.Errorf("%q: the largest size is 1G", text)
	case s.min > s.max:
		return span{}, fmt.Errorf("%q: the range from %d to %d bytes is empty", text, s.min, s.max)
	}
	return s, nil
}

// parseSizes reads one or more ranges with commas between them, of multiples of unit.
func parseSizes(text string, def span, unit int) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		s, err := parseSpan(part, def)
		if err != nil {
			return nil, err
		}
		if s.min%unit != 0 {
			return nil, fmt.Errorf("%q: sizes must be multiples of an element, %d bytes", part, unit)
		}
		all = append(all, s.sizes(unit)...)
	}
	if len(all) > maxSizes {
		return nil, fmt.Errorf("%d sizes: at most %d", len(all), maxSizes)
	}
	return all, nil
}

// sizes returns min and its doublings up to max. After 0 comes unit.
func (s span) sizes(unit int) []int {
	var all []int
	for n := s.min; n <= s.max; n *= 2 {
		all = append(all, n)
		if n == 0 {
			if n = unit; n <= s.max {
				all = append(all, n)
			}
		}
	}
	return all
}
