package verbs_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// The tests compare the tables with testdata, which was written from the sources, not from the
// code.

// rows reads a table of testdata, with cells between vertical bars and comments after #.
func rows(t *testing.T, file string, cells int) [][]string {
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	var all [][]string
	for _, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		row := strings.Split(line, "|")
		require.Len(t, row, cells, line)
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		all = append(all, row)
	}
	return all
}

func services(t *testing.T, s string) (set Services) {
	for _, word := range strings.Fields(s) {
		switch word {
		case "All":
			set |= AllServices
		case "RC":
			set |= ServiceRC
		case "UC":
			set |= ServiceUC
		case "UD":
			set |= ServiceUD
		case "RD": // verbs have no Reliable Datagram
		default:
			t.Fatalf("service %q", word)
		}
	}
	return set
}

func TestStatusesMatchTable(t *testing.T) {
	sides := map[string]Side{"Both": BothSides, "Unknown": BothSides, "Requester": Requester, "Responder": Responder, "-": NoSide}
	afters := map[string]After{"None": AfterNone, "-": AfterNone, "Error": AfterError, "Error or SQE": AfterErrorOrSQE}
	type row struct {
		side     Side
		services Services
		after    After
	}
	var order []string
	want := map[string]row{}
	for _, r := range rows(t, "statuses.txt", 4) {
		side, ok := sides[r[1]]
		require.True(t, ok, r)
		after, ok := afters[r[3]]
		require.True(t, ok, r)
		have, again := want[r[0]]
		if !again {
			order = append(order, r[0])
		}
		// A status with two rows has their union. AfterErrorOrSQE covers receives, which lead to
		// ERR.
		want[r[0]] = row{have.side | side, have.services | services(t, r[2]), max(have.after, after)}
	}
	require.Len(t, order, StatusCount)
	require.Len(t, Statuses(), StatusCount)
	for i, name := range order {
		t.Run("IBV_WC_"+name, func(t *testing.T) {
			s := Status(i)
			in := s.Info()
			require.Equal(t, Statuses()[i], in)
			require.Equal(t, s, in.Status)
			require.Equal(t, name, s.String())
			require.Equal(t, "IBV_WC_"+name, s.Native())
			require.Equal(t, want[name], row{in.Sides, in.Services, in.After})
			require.NotEmpty(t, in.Text)
		})
	}
	for _, s := range []Status{StatusCount, 23, 1 << 31} {
		require.Equal(t, StatusInfo{Status: s, Name: strconv.Itoa(int(s)), Text: "unknown status"}, s.Info())
	}
}

func TestEventsMatchTable(t *testing.T) {
	objects := map[string]Affiliation{"QP": AffiliationQP, "CQ": AffiliationCQ, "SRQ": AffiliationSRQ, "Port": AffiliationPort, "CA": AffiliationDevice}
	catastrophes := map[string]bool{"QP_FATAL": true, "CQ_ERR": true, "SRQ_ERR": true, "DEVICE_FATAL": true}
	byName := map[string]EventInfo{}
	for i, in := range EventTypes() {
		require.Equal(t, EventType(i), in.Type)
		require.Equal(t, in, EventType(i).Info())
		byName[in.Name] = in
	}
	table := rows(t, "events.txt", 5)
	require.Len(t, table, EventCount)
	require.Len(t, byName, EventCount)
	for _, r := range table {
		t.Run("IBV_EVENT_"+r[1], func(t *testing.T) {
			in, ok := byName[r[1]]
			require.True(t, ok)
			require.Equal(t, r[1], in.Type.String())
			require.Equal(t, "IBV_EVENT_"+r[1], in.Type.Native())
			require.Equal(t, objects[r[0]], in.Affiliation)
			require.Equal(t, r[3] == "Affiliated", in.Affiliation != AffiliationPort && in.Affiliation != AffiliationDevice)
			if r[2] == "" {
				r[2] = "All"
			}
			require.Equal(t, services(t, r[2]), in.Services)
			want := map[string]Severity{"Event": Notice, "Error": Fault}[r[4]]
			if catastrophes[r[1]] {
				want = Catastrophe
			}
			require.Equal(t, want, in.Severity)
			require.NotEmpty(t, in.Text)
		})
	}
	require.Equal(t, "19", EventType(EventCount).String())
	require.Equal(t, EventInfo{Type: 77, Name: "77", Text: "unknown event", Affiliation: AffiliationDevice, Severity: Notice}, EventType(77).Info())
}

func TestPostingMatchesTable(t *testing.T) {
	table := rows(t, "posting.txt", 4)
	require.Len(t, table, StateCount)
	for i, r := range table {
		t.Run("IBV_QPS_"+r[0], func(t *testing.T) {
			s := QPState(i)
			require.Equal(t, r[0], s.String())
			require.Equal(t, r[1], s.SendPosting().String(), "send")
			require.Equal(t, r[2], s.RecvPosting().String(), "receive")
			require.Equal(t, r[3] == "accepted", s.Receives())
		})
	}
	for _, s := range []QPState{StateCount, 1 << 31} {
		require.Equal(t, PostRefused, s.SendPosting())
		require.Equal(t, PostRefused, s.RecvPosting())
		require.False(t, s.Receives())
	}
	require.Equal(t, "state 7", QPState(StateCount).String())
}

func TestRefusalsMatchTable(t *testing.T) {
	table := rows(t, "refusals.txt", 5)
	require.Len(t, Refusals(), len(table))
	dash := func(s string, none string) string {
		if s == "-" {
			return none
		}
		return s
	}
	for i, r := range table {
		t.Run(strings.ReplaceAll(r[0]+"/"+r[1], " ", "-"), func(t *testing.T) {
			s := Refusals()[i]
			require.Equal(t, r[0], s.Op.String())
			require.Equal(t, r[1], s.Mistake.String())
			require.Equal(t, dash(r[2], "SUCCESS"), s.Completion.String())
			require.Equal(t, r[3] != "-", s.HasEvent)
			if s.HasEvent {
				require.Equal(t, r[3], s.Event.String())
				require.Equal(t, AffiliationQP, s.Event.Info().Affiliation)
			}
			require.Equal(t, r[4], s.Requester.String())
			require.NotZero(t, s.Requester.Info().Sides&Requester)
			if s.Completion != StatusSuccess {
				require.NotZero(t, s.Completion.Info().Sides&Responder)
			}
			found, ok := FindRefusal(s.Op, s.Mistake)
			require.True(t, ok)
			require.Equal(t, s, found)
		})
	}
	for op := OpSend; op <= OpAtomic; op++ {
		for m := BadKey; m <= OtherMistake; m++ {
			_, ok := FindRefusal(op, m)
			isRow := func(r []string) bool { return r[0] == op.String() && r[1] == m.String() }
			require.Equal(t, slices.ContainsFunc(table, isRow), ok, "%v, %v", op, m)
		}
	}
}

var (
	cComment   = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cEnum      = regexp.MustCompile(`(?s)\benum\s+\w*\s*\{(.*?)\}`)
	enumerator = regexp.MustCompile(`(\w+)\s*(?:=\s*\(?(\d+)?\s*(?:<<\s*(\d+))?[^,]*)?(?:,|\s*$)`)
)

// enums returns the values of the enumerators in a C header, by name. It understands numbers and
// shifts of numbers.
func enums(header []byte) map[string]uint64 {
	values := map[string]uint64{}
	for _, body := range cEnum.FindAllStringSubmatch(cComment.ReplaceAllString(string(header), ""), -1) {
		next := uint64(0)
		for _, m := range enumerator.FindAllStringSubmatch(body[1], -1) {
			if m[2] != "" {
				number, _ := strconv.ParseUint(m[2], 10, 64)
				shift, _ := strconv.Atoi(m[3]) // 0 without one
				next = number << shift
			}
			values[m[1]] = next
			next++
		}
	}
	return values
}

// TestConstantsMatchHeader compares the constants with those of verbs.h.
func TestConstantsMatchHeader(t *testing.T) {
	text, err := os.ReadFile("testdata/numbers.h")
	require.NoError(t, err)
	native := enums(text)

	here := map[string]uint64{
		"IBV_MTU_256": uint64(MTU256), "IBV_MTU_512": uint64(MTU512), "IBV_MTU_1024": uint64(MTU1024),
		"IBV_MTU_2048": uint64(MTU2048), "IBV_MTU_4096": uint64(MTU4096),
		"IBV_LINK_LAYER_UNSPECIFIED": uint64(LinkUnspecified), "IBV_LINK_LAYER_INFINIBAND": uint64(LinkInfiniBand),
		"IBV_LINK_LAYER_ETHERNET": uint64(LinkEthernet),
		"IBV_WR_RDMA_WRITE":       uint64(WRRDMAWrite), "IBV_WR_RDMA_WRITE_WITH_IMM": uint64(WRRDMAWriteWithImm),
		"IBV_WR_SEND": uint64(WRSend), "IBV_WR_SEND_WITH_IMM": uint64(WRSendWithImm), "IBV_WR_RDMA_READ": uint64(WRRDMARead),
		"IBV_WR_ATOMIC_CMP_AND_SWP": uint64(WRAtomicCmpAndSwp), "IBV_WR_ATOMIC_FETCH_AND_ADD": uint64(WRAtomicFetchAndAdd),
		"IBV_SEND_FENCE": uint64(SendFence), "IBV_SEND_SIGNALED": uint64(SendSignaled),
		"IBV_SEND_SOLICITED": uint64(SendSolicited), "IBV_SEND_INLINE": uint64(SendInline),
		"IBV_WC_SEND": uint64(WCSend), "IBV_WC_RDMA_WRITE": uint64(WCRDMAWrite), "IBV_WC_RDMA_READ": uint64(WCRDMARead),
		"IBV_WC_COMP_SWAP": uint64(WCCompSwap), "IBV_WC_FETCH_ADD": uint64(WCFetchAdd), "IBV_WC_RECV": uint64(WCRecv),
		"IBV_WC_RECV_RDMA_WITH_IMM": uint64(WCRecvRDMAWithImm),
		"IBV_WC_GRH":                uint64(WCGRH), "IBV_WC_WITH_IMM": uint64(WCWithImm),
		"IBV_ACCESS_LOCAL_WRITE": uint64(AccessLocalWrite), "IBV_ACCESS_REMOTE_WRITE": uint64(AccessRemoteWrite),
		"IBV_ACCESS_REMOTE_READ": uint64(AccessRemoteRead), "IBV_ACCESS_REMOTE_ATOMIC": uint64(AccessRemoteAtomic),
		"IBV_QP_STATE": uint64(AttrState), "IBV_QP_CUR_STATE": uint64(AttrCurState),
		"IBV_QP_EN_SQD_ASYNC_NOTIFY": uint64(AttrEnSQDAsyncNotify), "IBV_QP_ACCESS_FLAGS": uint64(AttrAccessFlags),
		"IBV_QP_PKEY_INDEX": uint64(AttrPKeyIndex), "IBV_QP_PORT": uint64(AttrPort), "IBV_QP_QKEY": uint64(AttrQKey),
		"IBV_QP_AV": uint64(AttrAV), "IBV_QP_PATH_MTU": uint64(AttrPathMTU), "IBV_QP_TIMEOUT": uint64(AttrTimeout),
		"IBV_QP_RETRY_CNT": uint64(AttrRetryCnt), "IBV_QP_RNR_RETRY": uint64(AttrRNRRetry), "IBV_QP_RQ_PSN": uint64(AttrRQPSN),
		"IBV_QP_MAX_QP_RD_ATOMIC": uint64(AttrMaxQPRdAtomic), "IBV_QP_ALT_PATH": uint64(AttrAltPath),
		"IBV_QP_MIN_RNR_TIMER": uint64(AttrMinRNRTimer), "IBV_QP_SQ_PSN": uint64(AttrSQPSN),
		"IBV_QP_MAX_DEST_RD_ATOMIC": uint64(AttrMaxDestRdAtomic), "IBV_QP_PATH_MIG_STATE": uint64(AttrPathMigState),
		"IBV_QP_CAP": uint64(AttrCap), "IBV_QP_DEST_QPN": uint64(AttrDestQPN),
	}
	for _, in := range Statuses() {
		here[in.Status.Native()] = uint64(in.Status)
	}
	for _, in := range EventTypes() {
		here[in.Type.Native()] = uint64(in.Type)
	}
	for s := range QPState(StateCount) {
		here["IBV_QPS_"+s.String()] = uint64(s)
	}
	for s := PortNop; s <= PortActiveDefer; s++ {
		here["IBV_PORT_"+s.String()] = uint64(s)
	}
	for m := AttrState; m <= AttrDestQPN; m <<= 1 {
		require.Equal(t, uint64(m), here["IBV_QP_"+m.String()], "name of %#x", uint32(m))
	}

	require.Equal(t, native, here)
	if header, err := os.ReadFile("/usr/include/infiniband/verbs.h"); err == nil {
		installed := enums(header)
		for name, n := range here {
			require.Equal(t, n, installed[name], "%s in the installed header", name)
		}
	}
}

// TestTimersMatchSpecification checks the RNR timers against table 45 of the InfiniBand
// specification, in milliseconds, and the acknowledgment timeouts against its section 9.7.6.1.3.
func TestTimersMatchSpecification(t *testing.T) {
	for code, ms := range []float64{655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92, 2.56, 3.84,
		5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52} {
		require.InDelta(t, ms, float64(RNRTimer(uint8(code)))/1e6, 1e-9, "code %d", code)
	}
	require.Zero(t, AckTimeout(0))
	require.EqualValues(t, 8192, AckTimeout(1))
	require.EqualValues(t, 67108864, AckTimeout(14))
	require.EqualValues(t, 4096<<31, AckTimeout(31))
}

func TestStringNamesValues(t *testing.T) {
	require.Equal(t, "RC|UC|UD", AllServices.String())
	require.Equal(t, "PKEY_INDEX|PORT", (AttrPKeyIndex | AttrPort).String())
	require.Equal(t, "STATE|0x2000000", (AttrState | 1<<25).String())
	require.Equal(t, "QP", AffiliationQP.String())
	require.Equal(t, "catastrophe", Catastrophe.String())
	for _, name := range []string{Affiliation(9).String(), Severity(9).String(), Posting(9).String(),
		Operation(9).String(), Mistake(9).String(), PortState(9).String(), GIDType(9).String()} {
		require.Contains(t, name, "9", "a value without a name")
	}
	require.True(t, PortActive.Up() && PortActiveDefer.Up())
	require.False(t, PortNop.Up() || PortDown.Up() || PortInit.Up() || PortArmed.Up())
	for m, n := range map[MTU]int{0: 0, MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048, MTU4096: 4096, 6: 0} {
		require.Equal(t, n, m.Bytes())
	}
	require.True(t, GID{}.IsZero())
	gid := GID{10: 0xff, 11: 0xff, 12: 10, 13: 10, 15: 1}
	require.Equal(t, "3 (::ffff:10.10.0.1, RoCE v2)", GIDEntry{3, gid, GIDTypeRoCEv2}.String())
}
