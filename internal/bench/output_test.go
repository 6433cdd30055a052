package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

func printed(t *testing.T, args string, values ...float64) string {
	t.Helper()
	cfg, err := parse(strings.Fields(args))
	require.NoError(t, err)
	var out bytes.Buffer
	p := &printer{out: &out, cfg: cfg, ranks: 4, btl: "sm"}
	require.NoError(t, p.header())
	require.NoError(t, p.row(cfg.sizes[0], values))
	return out.String()
}

func TestTable(t *testing.T) {
	assert.Equal(t, ""+
		"# mpigo latency, 4 ranks, sm\n"+
		"# Size          Latency (us)\n"+
		"8                      0.043\n", printed(t, "latency -m 8:8", 0.0434))
	assert.Equal(t, ""+
		"# mpigo bw, 4 ranks, sm, Alloc memory, 10 % unexpected\n"+
		"# Size      Bandwidth (MB/s)\n"+
		"1048576             56123.46\n", printed(t, "bw -m 1M:1M --alloc --unexpected 10", 56123.456))
	assert.Equal(t, ""+
		"# mpigo mbw_mr, 4 ranks, sm\n"+
		"# Size                  MB/s        Messages/s\n"+
		"8                     185.00       23125000.00\n", printed(t, "mbw_mr -m 8:8", 185, 23125000))
	assert.Equal(t, ""+
		"# mpigo allreduce, 4 ranks, sm\n"+
		"# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)\n"+
		"8                      3.600             3.500             3.700\n", printed(t, "allreduce -m 8:8", 3.6, 3.5, 3.7))
	assert.Equal(t, ""+
		"# mpigo iallreduce, 4 ranks, sm, 3 calls of Test\n"+
		"# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n"+
		"8                      5.000             4.000             4.000             75.00\n", printed(t, "iallreduce -m 8:8 -t 3", 5, 4, 4, 75))
}

func TestObjects(t *testing.T) {
	assert.Equal(t, `{"bench":"latency","size":8,"value":0.0434,"unit":"us","ranks":4,"btl":"sm"}`+"\n",
		printed(t, "latency -m 8:8 --json", 0.0434))
	assert.Equal(t, `{"bench":"bw","size":8,"value":7,"unit":"MB/s","ranks":4,"btl":"sm","variants":["Alloc memory","window of 8","validated"]}`+"\n",
		printed(t, "bw -m 8:8 -W 8 --alloc --validate --json", 7))
	assert.Equal(t, `{"bench":"mbw_mr","size":8,"value":185,"unit":"MB/s","ranks":4,"btl":"sm"}`+"\n"+
		`{"bench":"mbw_mr","size":8,"value":2.3125e+07,"unit":"msg/s","ranks":4,"btl":"sm"}`+"\n",
		printed(t, "mbw_mr -m 8:8 --json", 185, 23125000))
	assert.Equal(t, `{"bench":"barrier","size":0,"value":3.6,"min":3.5,"max":3.7,"unit":"us","ranks":4,"btl":"sm"}`+"\n",
		printed(t, "barrier --json", 3.6, 3.5, 3.7))
	assert.Equal(t, `{"bench":"ibarrier","size":0,"value":4,"overall":5,"compute":4.5,"unit":"us","ranks":4,"btl":"sm"}`+"\n"+
		`{"bench":"ibarrier","size":0,"value":87.5,"unit":"%","ranks":4,"btl":"sm"}`+"\n",
		printed(t, "ibarrier --json", 5, 4.5, 4, 87.5))
}

func TestTransports(t *testing.T) {
	assert.Equal(t, "self", transports(0, nil))
	assert.Equal(t, "self", transports(0, []comm.RailStatus{{Peer: 0, Rail: "loop0", State: "up"}}))
	assert.Equal(t, "loop", transports(0, []comm.RailStatus{{Peer: 1, Rail: "loop0", State: "up"}, {Peer: 1, Rail: "loop1", State: "up"}}))
	assert.Equal(t, "ibverbs,sm", transports(1, []comm.RailStatus{
		{Peer: 0, Rail: "ibverbs:rxe0/1", State: "up"}, {Peer: 0, Rail: "tcp:eth0", State: "down"}, {Peer: 1, Rail: "loop0", State: "up"}, {Peer: 2, Rail: "sm", State: "up"},
	}))
}
