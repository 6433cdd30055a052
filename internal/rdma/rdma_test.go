package rdma_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/rdma"
)

// tree makes files below a new root and returns the root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return root
}

func TestNetDevsOfPortAndDevice(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/class/infiniband/rxe0/parent":                      "eth0\n",
		"sys/class/infiniband/rxe0/ports/1/gids/0":              "0000:0000:0000:0000:0000:ffff:0a0a:0001\n",
		"sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0":   "eth0.7\n",
		"sys/class/infiniband/mlx5_0/device/net/ib0/address":    "x\n",
		"sys/class/infiniband/mlx5_0/ports/1/link_layer":        "InfiniBand\n",
		"sys/class/infiniband/mlx5_1/ports/1/gids/0":            "0000:0000:0000:0000:0000:ffff:0a0a:0002\n",
		"sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0": "eth1\n",
		"sys/class/infiniband/mlx5_1/device/net/eth1/address":   "x\n",
	})
	assert.Equal(t, []string{"eth0.7", "eth0"}, rdma.NetDevs(root, "rxe0", 1))
	assert.Equal(t, []string{"ib0"}, rdma.NetDevs(root, "mlx5_0", 1))
	assert.Equal(t, []string{"eth1"}, rdma.NetDevs(root, "mlx5_1", 1))
	assert.Empty(t, rdma.NetDevs(root, "gone", 1))
	assert.Empty(t, rdma.NetDevs(root, "../net", 1))
}

func TestDevicesReadsPortsAndGIDs(t *testing.T) {
	const rxe, mlx = "sys/devices/virtual/infiniband/rxe0/", "sys/devices/pci0000:00/infiniband/mlx5_0/"
	root := tree(t, map[string]string{
		rxe + "ports/1/state":             "4: ACTIVE\n",
		rxe + "ports/1/link_layer":        "Ethernet\n",
		rxe + "ports/1/rate":              "2.5 Gb/sec (1X SDR)\n",
		rxe + "ports/1/lid":               "0x0\n",
		rxe + "ports/1/gids/0":            "fe80:0000:0000:0000:0011:22ff:fe33:4455\n",
		rxe + "ports/1/gids/1":            "0000:0000:0000:0000:0000:ffff:0a0a:0001\n",
		rxe + "ports/1/gids/10":           "0000:0000:0000:0000:0000:ffff:0a0a:0001\n",
		rxe + "ports/1/gids/2":            "0000:0000:0000:0000:0000:0000:0000:0000\n",
		rxe + "ports/1/gid_attrs/types/0": "IB/RoCE v1\n",
		rxe + "ports/1/gid_attrs/types/1": "RoCE v2\n",
		rxe + "ports/1/gid_attrs/ndevs/1": "eth0\n",
		rxe + "ports/1/gid_attrs/ndevs/0": "eth0\n",
		"sys/class/net/eth0/mtu":          "1500\n",
		mlx + "ports/2/state":             "1: DOWN\n",
		mlx + "ports/2/link_layer":        "InfiniBand\n",
		mlx + "ports/2/rate":              "100 Gb/sec (4X EDR)\n",
		mlx + "ports/2/lid":               "0x1f\n",
		mlx + "ports/2/gids/0":            "fe80:0000:0000:0000:ec0d:9a03:0000:0001\n",
		mlx + "ports/2/gid_attrs/types/0": "IB/RoCE v1\n",
		mlx + "ports/10/state":            "4: ACTIVE\n",
	})
	class := filepath.Join(root, "sys/class/infiniband")
	require.NoError(t, os.MkdirAll(class, 0o777))
	require.NoError(t, os.Symlink("../../devices/virtual/infiniband/rxe0", class+"/rxe0"))
	require.NoError(t, os.Symlink("../../devices/pci0000:00/infiniband/mlx5_0", class+"/mlx5_0"))

	assert.Equal(t, []rdma.Device{
		{Name: "mlx5_0", Ports: []rdma.Port{
			{Number: 2, State: "DOWN", LinkLayer: "InfiniBand", Rate: "100 Gb/sec (4X EDR)", Mbps: 100000, LID: 31, NetDevs: []string{},
				GIDs: []rdma.GID{{Addr: netip.MustParseAddr("fe80::ec0d:9a03:0:1"), Type: rdma.IB}}},
			{Number: 10, State: "ACTIVE", NetDevs: []string{}, GIDs: []rdma.GID{}},
		}},
		{Name: "rxe0", Ports: []rdma.Port{
			{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Rate: "2.5 Gb/sec (1X SDR)", Mbps: 2500, NetDevs: []string{"eth0"}, MTU: 1500,
				GIDs: []rdma.GID{
					{Index: 0, Addr: netip.MustParseAddr("fe80::11:22ff:fe33:4455"), Type: rdma.RoCEv1, NetDev: "eth0"},
					{Index: 1, Addr: netip.MustParseAddr("10.10.0.1"), Type: rdma.RoCEv2, NetDev: "eth0"},
					{Index: 10, Addr: netip.MustParseAddr("10.10.0.1"), Type: rdma.RoCEv1},
				}},
		}},
	}, rdma.Devices(root))
}

func TestDevicesOfEmptyRootIsEmpty(t *testing.T) {
	assert.Equal(t, []rdma.Device{}, rdma.Devices(t.TempDir()))
	assert.Equal(t, rdma.Port{Number: 3, NetDevs: []string{}, GIDs: []rdma.GID{}}, rdma.ReadPort(t.TempDir(), "none", 3))
}

// The files are such that no kernel makes them.
func TestDevicesSkipsBadFiles(t *testing.T) {
	const port = "sys/class/infiniband/bad/ports/1/"
	root := tree(t, map[string]string{
		port + "state":                       "ACTIVE",
		port + "link_layer":                  "Ether\x1b[2Jnet\nsecond line",
		port + "rate":                        "NaN Gb/sec",
		port + "lid":                         "0x99999",
		port + "gids/0":                      "not an address",
		port + "gids/1":                      "fe80::1%../../etc",
		port + "gids/-3":                     "fe80::3",
		port + "gids/007":                    "fe80::7",
		port + "gids/99999999999999999999":   "fe80::9",
		port + "gids/5":                      "fe80::5\x00\xff\xfe",
		port + "gids/6":                      "fe80::6",
		port + "gid_attrs/ndevs/6":           "../../../etc",
		port + "gid_attrs/types/6":           strings.Repeat("x", 1<<20),
		"sys/class/infiniband/file":          "a file, not a directory",
		"sys/class/infiniband/empty/x":       "",
		"sys/class/infiniband/b\x1b[31m/x":   "",
		"sys/class/infiniband/bad/ports/0/x": "",
	})
	// A loop.
	require.NoError(t, os.Symlink(".", filepath.Join(root, "sys/class/infiniband/bad/ports/2")))
	require.NoError(t, os.Symlink("loop", filepath.Join(root, "sys/class/infiniband/loop")))
	fifo := filepath.Join(root, "sys/class/infiniband/bad/ports/1/gids/8") // would block
	require.NoError(t, syscall.Mkfifo(fifo, 0o666))
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "sys/class/infiniband/empty/ports"), 0o666))

	none := []string{}
	assert.Equal(t, []rdma.Device{
		{Name: "bad", Ports: []rdma.Port{
			{Number: 1, LinkLayer: "Ether[2Jnet", Rate: "NaN Gb/sec", NetDevs: none, GIDs: []rdma.GID{
				{Index: 5, Addr: netip.MustParseAddr("fe80::5"), Type: rdma.IB}, {Index: 6, Addr: netip.MustParseAddr("fe80::6"), Type: rdma.IB},
			}},
			{Number: 2, NetDevs: none, GIDs: []rdma.GID{}},
		}},
		{Name: "empty", Ports: []rdma.Port{}},
	}, rdma.Devices(root))
}

func TestPortJSONRoundTrip(t *testing.T) {
	p := rdma.Port{Number: 1, NetDevs: []string{}, GIDs: []rdma.GID{{Addr: netip.MustParseAddr("10.0.0.1"), Type: rdma.RoCEv2}}}
	text, err := json.Marshal(p)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"gid":"10.0.0.1","type":"RoCE v2"`)
	var back rdma.Port
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, p, back)
}
