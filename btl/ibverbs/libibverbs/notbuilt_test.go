//go:build !ibverbs || !cgo || !linux

package libibverbs

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var _ verbs.Provider = (*Provider)(nil)

func TestNewWithoutTagFails(t *testing.T) {
	p, err := New()
	assert.Nil(t, p)
	assert.ErrorIs(t, err, ErrNotBuilt)
	assert.ErrorContains(t, err, "-tags ibverbs")
	assert.NotContains(t, err.Error(), "\n")
	_, err = p.Devices()
	assert.ErrorIs(t, err, ErrNotBuilt)
	_, err = p.Open("rxe0")
	assert.ErrorIs(t, err, ErrNotBuilt)
}
