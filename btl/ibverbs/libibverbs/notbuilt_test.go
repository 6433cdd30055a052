//go:build !cgo || !linux || 386 || arm || mips || mipsle

package libibverbs

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var _ verbs.Provider = (*Provider)(nil)

func TestNewWithoutCgoFails(t *testing.T) {
	p, err := New()
	assert.Nil(t, p)
	assert.ErrorIs(t, err, ErrNotBuilt)
	assert.ErrorContains(t, err, "built without cgo")
	assert.NotContains(t, err.Error(), "\n")
	_, err = p.Devices()
	assert.ErrorIs(t, err, ErrNotBuilt)
	_, err = p.Open("rxe0")
	assert.ErrorIs(t, err, ErrNotBuilt)
}
