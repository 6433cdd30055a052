package info

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
)

func TestReportRoundTripsAndListsTunables(t *testing.T) {
	set, err := tunable.Set{}.With("verbose", "yes", tunable.FromCommandLine)
	require.NoError(t, err)
	r := Collect(set)
	require.Len(t, r.Tunables, len(tunable.All()))
	for _, row := range r.Tunables {
		if row.Key == "verbose" {
			assert.Equal(t, Tunable{Key: "verbose", Kind: "bool", Value: "yes", Origin: "command line", Default: "false", Env: "MPIGO_VERBOSE", Doc: row.Doc}, row)
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

func TestThisMachineReadsRoot(t *testing.T) {
	root := t.TempDir()
	m := ThisMachine(root)
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
	m = ThisMachine(root)
	assert.Equal(t, library, m.Libibverbs)
	assert.Equal(t, []string{"mlx5_0"}, m.RDMADevices)
	assert.Positive(t, m.ShmBytes)
	assert.Equal(t, []rdma.Device{{Name: "mlx5_0", Ports: []rdma.Port{}}}, m.RDMA)
	assert.NotZero(t, m.LockedBytes)
}

func TestTextListsRDMADevices(t *testing.T) {
	r := Report{Machine: Machine{
		LockedBytes: 8 << 20, RDMADevices: []string{"mlx5_0", "rxe0"},
		RDMA: []rdma.Device{{Name: "mlx5_0", Ports: []rdma.Port{{Number: 1}}}, {Name: "rxe0", Ports: []rdma.Port{{
			Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Rate: "2.5 Gb/sec (1X SDR)", LID: 3, NetDevs: []string{"eth0"}, MTU: 1500,
			GIDs: []rdma.GID{{Index: 1, Addr: netip.MustParseAddr("10.0.0.1"), Type: rdma.RoCEv2}},
		}}}},
	}}
	var text bytes.Buffer
	require.NoError(t, r.Text(&text))
	assert.Regexp(t, `(?m)^  libibverbs    not installed; locked memory: 8.0 MiB at most
  RDMA devices  mlx5_0, rxe0
    mlx5_0      port 1: state unknown
    rxe0        port 1: ACTIVE, Ethernet, 2.5 Gb/sec \(1X SDR\), LID 3, on eth0, MTU 1500
                  GID 1: 10.0.0.1, RoCE v2
$`, text.String())
	r.Machine.LockedBytes = -1
	text.Reset()
	require.NoError(t, r.Text(&text))
	assert.Contains(t, text.String(), "locked memory: unlimited\n")
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 24 << 30: "24.0 GiB", 1 << 62: "4194304.0 TiB"} {
		assert.Equal(t, want, SizeText(n))
	}
}
