package base

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrConfig: a field of a configuration has a value that is not permitted.
var ErrConfig = errors.New("bad configuration")

// SetDefault sets a field that is zero.
func SetDefault[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

// Check returns an error if a condition on a field of a configuration does not hold.
func Check(ok bool, field string, value any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%w: %s %v", ErrConfig, field, value)
}
