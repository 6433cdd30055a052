package mpitest_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more tests side by side than there are cores: most of them wait for a hang to last.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
