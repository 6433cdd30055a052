//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/internal/verbstest"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/rdma"
)

// tableEnv names a Markdown file and a column, separated by a comma. The column must contain the
// outcomes of the statuses and events.
const tableEnv = "MPIGO_TEST_VERBS_TABLE"

// TestDeviceConformance runs the conformance suite on the two devices; scripts/verbs.sh runs it.
// Only root can take links down and change addresses.
func TestDeviceConformance(t *testing.T) {
	p, err := New()
	require.NoError(t, err)
	names := strings.Split(os.Getenv(devicesEnv), ",")
	require.Len(t, names, 2, devicesEnv)
	result := verbstest.Test(t, func(t testing.TB) *verbstest.Pair {
		pair := &verbstest.Pair{PortA: 1, PortB: 1, Provider: p, Patience: patience}
		if strings.HasPrefix(names[0], "rxe") {
			pair.Differs = rxeDiffers
		}
		var err error
		pair.A, err = p.Open(names[0])
		require.NoError(t, err)
		pair.B, err = p.Open(names[1])
		require.NoError(t, err)
		pair.GIDA, pair.GIDB = roce(t, pair.A), roce(t, pair.B)
		if os.Geteuid() == 0 {
			pair.Injector = verbstest.Injector{
				Link: func(dev verbs.Device, port int, up bool) {
					ipCommand(t, "link", "set", netdev(t, dev, port), map[bool]string{true: "up", false: "down"}[up])
				},
				ShortMTU: func(dev verbs.Device, port int) (restore func()) {
					name := netdev(t, dev, port)
					before, err := os.ReadFile("/sys/class/net/" + name + "/mtu")
					require.NoError(t, err)
					ipCommand(t, "link", "set", name, "mtu", "1500")
					return func() { ipCommand(t, "link", "set", name, "mtu", strings.TrimSpace(string(before))) }
				},
				Address: func(dev verbs.Device, port int) {
					for _, do := range []string{"add", "del"} {
						ipCommand(t, "address", do, "10.10.77.1/32", "dev", netdev(t, dev, port))
					}
				},
			}
		}
		return pair
	})
	if !t.Failed() {
		t.Logf("outcomes:\n%v", result)
	}
	if table := os.Getenv(tableEnv); table != "" {
		file, column, _ := strings.Cut(table, ",")
		result.Table(t, file, column)
	}
}

// roce returns the index of the last RoCE v2 GID, or of the first GID if there is none.
func roce(t testing.TB, dev verbs.Device) int {
	gids, err := dev.GIDs(1)
	require.NoError(t, err)
	require.NotEmpty(t, gids, "%s has no GID", dev.Name())
	index := gids[0].Index
	for _, g := range gids {
		if g.Type == verbs.GIDTypeRoCEv2 {
			index = g.Index
		}
	}
	return index
}

// netdev returns the network device of a port.
func netdev(t testing.TB, dev verbs.Device, port int) string {
	netdevs := rdma.ReadPort("/", dev.Name(), port).NetDevs
	require.NotEmpty(t, netdevs)
	return netdevs[0]
}

func ipCommand(t testing.TB, args ...string) {
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %v: %s", args, out)
}

// rxeDiffers lists how soft-RoCE (rdma_rxe of Linux 6.1) is known to differ from the tables.
var rxeDiffers = map[string]verbstest.Difference{
	"Transitions/*/RESET-to-ERR": differs("Linux has no such transition", "from RESET to ERR with STATE"),
	"Transitions/UC/SQD-to-SQD-with-options": differs("Linux adds PORT to AV, which UC does not allow",
		"from SQD to SQD with STATE|ACCESS_FLAGS|PKEY_INDEX|AV"),
	"Transitions/U[CD]/SQE-to-*":         noSQE,
	"Posting/U[CD]/SQE/*":                noSQE,
	"Queues/SQE/receives-and-recovers/*": noSQE,
	"Posting/*/SQD/send": differs("sends pending in SQD do not start when the queue pair is in RTS again",
		"timed out waiting for 1 completions of A's send queue; A is RTS, B is RTS"),
	"Posting/*/ERR/recv":          noFlush,
	"Queues/flush/marker/receive": noFlush,
	"Queues/reset/drops-own-completions": differs("RESET leaves the queue pair's completions in the queue",
		"expected: 0xabcd000000000002 actual : 0xabcd000000000001 request ID"),

	"Statuses/LOC_LEN_ERR/short-receive/*":              shortReceive("LOC_LEN_ERR", "LOC_QP_OP_ERR"),
	"SharedReceive/short-receive":                       shortReceive("REM_INV_REQ_ERR", "REM_OP_ERR"),
	"Refusals/SEND/too-long":                            shortReceive("REM_INV_REQ_ERR", "REM_OP_ERR"),
	"Dropped/UD/longer-than-the-receive":                shortReceive("SUCCESS", "LOC_QP_OP_ERR"),
	"Statuses/LOC_LEN_ERR/over-the-maximum/*":           status("the device ignores max_msg_sz and delivers the message", "LOC_LEN_ERR", "SUCCESS"),
	"Statuses/LOC_QP_OP_ERR/opcode/UC":                  noSQE,
	"Statuses/LOC_PROT_ERR/send/*/wrong-key":            badLKey,
	"Statuses/LOC_PROT_ERR/send/*/no-longer-registered": badLKey,
	"Statuses/LOC_PROT_ERR/send/*/other-domain":         badLKey,
	"Statuses/LOC_PROT_ERR/send/U[CD]/be*":              noSQE,
	"Statuses/LOC_PROT_ERR/receive/*/*":                 badLKey,
	"Refusals/SEND/bad-key":                             badLKey,
	"Refusals/WRITE_WITH_IMM/bad-key":                   writeImm,
	"Refusals/WRITE_WITH_IMM/bad-key/*-*":               writeImm,

	"Data/RC/read-cut-off": differs("a read sometimes succeeds without its last packets, if the responder's device could not send them",
		"a read of 262144 bytes succeeded, but its bytes from "),

	"Events/CQ_ERR/overrun": differs("the failed queue still returns completions", "was 1 completions of a failed queue"),
	"Events/QP_FATAL/by-CQ_ERR": differs("queue pairs of a failed queue keep working",
		"timed out waiting for IBV_EVENT_QP_FATAL of A; A is RTS, B is RTS; events of A [CQ_ERR], of B []"),
	"Events/COMM_EST/[RU]C": differs("COMM_EST is not raised",
		"timed out waiting for IBV_EVENT_COMM_EST of B; A is RTS, B is RTR; events of A [], of B []"),
	"Events/QP_LAST_WQE_REACHED/*-*": differs("QP_LAST_WQE_REACHED is not raised",
		"timed out waiting for IBV_EVENT_QP_LAST_WQE_REACHED of B; A is RTS, B is ERR; events of A [], of B []"),
	"Events/SQ_DRAINED/outstanding-send": differs("a send without a receive at the peer is not repeated in SQD and mostly counts as complete",
		"a send is outstanding, but draining is false, events 1",
		"timed out waiting for 1 completions of A's send queue; A is SQD, B is RTS; events of A [], of B []"),
	"Events/QP_ACCESS_ERR/WRITE":  noAccessErr,
	"Refusals/WRITE/bad-key":      noAccessErr,
	"Refusals/WRITE/bad-key/*-*":  noAccessErr,
	"Refusals/READ/bad-key":       noAccessErr,
	"Refusals/READ/bad-key/*-*":   noAccessErr,
	"Refusals/ATOMIC/bad-key":     noAccessErr,
	"Refusals/ATOMIC/bad-key/*-*": noAccessErr,
	"Refusals/READ/too-many":      tooMany,
	"Refusals/ATOMIC/too-many":    tooMany,
	"Objects/QP/more-reads-than-the-device-has": differs("the device ignores max_qp_rd_atom",
		"An error is expected but got nil. as responder"),
	"Refusals/ATOMIC/misaligned": differs("the library refuses the post", "ibv_post_send: invalid argument post"),
}

var (
	noSQE   = differs("a failed send moves UC and UD to ERR", "A is in ERR, not in SQE")
	noFlush = verbstest.Difference{
		Why: "a receive posted in ERR completes only if the driver's task has not yet flushed the queue",
		Seen: []string{
			"timed out waiting for 1 completions of A's receive queue; A is ERR, B is RTS",
		},
		MayPass: true,
	}
	badLKey     = status("a wrong key gives LOC_QP_OP_ERR", "LOC_PROT_ERR", "LOC_QP_OP_ERR")
	writeImm    = status("the responder's receive completes with REM_ACCESS_ERR", "LOC_ACCESS_ERR", "REM_ACCESS_ERR")
	noAccessErr = differs("QP_ACCESS_ERR is not raised",
		"timed out waiting for IBV_EVENT_QP_ACCESS_ERR of B; A is ERR, B is ERR; events of A [], of B []")
	tooMany = status("the responder does not count outstanding requests; all succeed", "REM_INV_REQ_ERR", "SUCCESS")
)

// differs returns a difference with these failures.
func differs(why string, seen ...string) verbstest.Difference {
	return verbstest.Difference{Why: why, Seen: seen}
}

// status returns a difference in the status of a completion.
func status(why, want, have string) verbstest.Difference {
	return differs(why, fmt.Sprintf(`expected: "IBV_WC_%s" actual : "IBV_WC_%s"`, want, have))
}

func shortReceive(want, have string) verbstest.Difference {
	return status("the receive completes with LOC_QP_OP_ERR, so the requester gets REM_OP_ERR", want, have)
}
