package info

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/tunable"
)

func TestReport(t *testing.T) {
	set, err := tunable.Set{}.With("stats", "yes", tunable.FromCommandLine)
	require.NoError(t, err)
	r := Collect(set)
	require.Len(t, r.Tunables, len(tunable.All()))
	for _, row := range r.Tunables {
		if row.Key == "stats" {
			assert.Equal(t, Tunable{Key: "stats", Kind: "bool", Value: "yes", Origin: "command line", Default: "false", Env: "MPIGO_STATS", Doc: row.Doc}, row)
		} else {
			assert.Equal(t, row.Default, row.Value)
		}
	}

	var text, object bytes.Buffer
	require.NoError(t, r.JSON(&object))
	var again Report
	require.NoError(t, json.Unmarshal(object.Bytes(), &again))
	assert.Equal(t, r, again)
	require.NoError(t, r.Text(&text))
	for _, row := range r.Tunables {
		assert.Contains(t, text.String(), row.Key)
		assert.Contains(t, text.String(), row.Doc)
	}
	assert.NotRegexp(t, `(?m) $`, text.String())
}

func TestThisMachine(t *testing.T) {
	root := t.TempDir()
	m := thisMachine(root)
	assert.Empty(t, m.Libibverbs)
	assert.Equal(t, []string{}, m.RDMADevices)
	assert.Zero(t, m.ShmBytes)
	assert.NotEmpty(t, m.Kernel)
	assert.Positive(t, m.MemoryBytes)

	for _, dir := range []string{"dev/shm", "sys/class/infiniband/mlx5_0", "usr/lib/x86_64-linux-gnu"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o777))
	}
	library := filepath.Join(root, "usr/lib/x86_64-linux-gnu/libibverbs.so.1")
	require.NoError(t, os.WriteFile(library, nil, 0o666))
	m = thisMachine(root)
	assert.Equal(t, library, m.Libibverbs)
	assert.Equal(t, []string{"mlx5_0"}, m.RDMADevices)
	assert.Positive(t, m.ShmBytes)
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 24 << 30: "24.0 GiB", 1 << 62: "4194304.0 TiB"} {
		assert.Equal(t, want, size(n))
	}
}
