package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPace(t *testing.T) {
	begin := time.Now()
	assert.Equal(t, begin, pace(begin, 1e6, 0), "no limit")
	due := begin
	for range 3 {
		due = pace(due, 1e6, 50e6)
	}
	assert.GreaterOrEqual(t, time.Since(begin), 60*time.Millisecond, "3 MB at 50 MB/s")
}
