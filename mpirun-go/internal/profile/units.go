package profile

import (
	"fmt"
	"strconv"
)

// bytesText writes a length with a binary unit.
func bytesText(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return number(n) + " " + units[i]
}

// timeText writes nanoseconds with a unit.
func timeText(n float64) string {
	units := []string{"ns", "µs", "ms", "s"}
	i := 0
	for n >= 1000 && i < len(units)-1 {
		n /= 1000
		i++
	}
	return number(n) + " " + units[i]
}

// countText writes a count with its thousands separated.
func countText(n float64) string {
	s := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func number(n float64) string {
	switch {
	case n >= 99.95 || n == float64(int64(n)):
		return fmt.Sprintf("%.0f", n)
	case n >= 9.995:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.2f", n)
}

// approximate puts a mark before a number that is an estimate.
func approximate(isEstimated bool, number string) string {
	if isEstimated {
		return "≈" + number
	}
	return number
}

func percentText(p float64) string { return fmt.Sprintf("%.1f %%", p) }
