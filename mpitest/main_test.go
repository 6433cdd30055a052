package mpitest_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// TestMain runs several tests side by side also with few cores: most of them wait for a hang to
// last.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(max(12, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
