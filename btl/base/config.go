package base

import (
	"errors"
	"fmt"
)

var errConfig = errors.New("bad configuration")

// SetDefault sets a field that is zero.
func SetDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Check is a condition on one field of a configuration.
type Check struct {
	OK    bool
	Field string // its name, for the message
	Value any
}

// CheckConfig returns an error for the first condition that does not hold.
func CheckConfig(checks []Check) error {
	for _, c := range checks {
		if !c.OK {
			return fmt.Errorf("%w: %s %v", errConfig, c.Field, c.Value)
		}
	}
	return nil
}
