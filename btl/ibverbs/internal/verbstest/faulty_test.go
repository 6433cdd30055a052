package verbstest_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/internal/verbstest"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// A faulty provider breaks one rule, and the suite must find that. Each provider runs in its own
// process because the suite fails there.

// faultEnv names the rule that the provider of TestFaultyProvider breaks.
const faultEnv = "VERBSTEST_FAULT"

var faults = []struct {
	rule string
	test string // subtest of TestFaultyProvider that must fail
	says string // regular expression for its output
}{
	{"illegal transition", "Transitions/RC/RTR-to-SQD", "Expected error|An error is expected"},
	{"attribute missing", "Transitions/RC/INIT-to-RTR-with-wrong-attributes", "Expected error|An error is expected"},
	{"state stays", "Transitions/RC/RTR-to-RTS", "expected: \"RTS\""},
	{"attribute changed", "Transitions/RC/RTR-to-RTS", "returned by Query"},
	{"post accepted", "Posting/RC/RTR/send", "Expected error|An error is expected"},
	{"flush lost", "Posting/RC/ERR/send", "timed out waiting"},
	{"flush lost", "Queues/flush/in-SQD", "timed out waiting"},
	{"flush out of order", "Queues/flush/in-SQD", "request ID"},
	{"flush as failure", "Statuses/WR_FLUSH_ERR/after-a-failure/RC", "IBV_WC_WR_FLUSH_ERR"},
	{"status", "Statuses/REM_ACCESS_ERR/key/WRITE", "IBV_WC_REM_ACCESS_ERR"},
	{"status", "Refusals/READ/bad-key", "status at the requester"},
	{"event lost", "Events/COMM_EST/RC", "timed out waiting"},
	{"event lost", "Refusals/WRITE/bad-key", "timed out waiting"},
	{executesRefused, "Refusals/WRITE/bad-key", "the memory of the responder has changed"},
	{executesRefused, "Refusals/ATOMIC/bad-key", "the memory of the responder has changed"},
	{"event twice", "Events/COMM_EST/RC", "number of events"},
	{"event without object", "Events/SQ_DRAINED/idle", "timed out waiting"},
	{"draining not reported", "Events/SQ_DRAINED/outstanding-send", "a send is outstanding, but draining is false, events 0"},
	{"event of another port", "Events/PORT_ERR/link", "timed out waiting"},
	{"length", "Data/RC/MTU-1024/SEND", "bytes received"},
	{"immediate", "Data/RC/MTU-1024/SEND_WITH_IMM", "Not equal"},
	{"opcode", "Data/RC/MTU-1024/READ", "opcode of the completion"},
	{"damage", "Data/RC/MTU-1024/WRITE", "not what was sent"},
	{"damage", "Queues/order/many", "message"},
	{"failure as success", "Data/RC/read-cut-off", `a read of 262144 bytes succeeded, but its bytes from \d+ on are missing`},
	{"unsignaled completes", "Queues/signal/unsignaled", "request ID"},
	{"completion twice", "Queues/order/mixed", "request ID"},
	{"count of posts", "Queues/batch/malformed-send", "number of accepted requests"},
	{"never full", "Queues/full/receive", "an error|not all requests were accepted|never full|expected"},
	{"arms always", "Completions/channel/ignores-old-completions", "old completions raise no event"},
	{"destroyed though busy", "Objects/busy/CQ-of-sends", "Expected error with"},
	{"acknowledges itself", "Objects/event/acknowledge-before-destroy", "is unacknowledged"},
	{"opens anything", "Objects/provider/names", "Expected error with"},
	{"listed but passes", "Statuses/SUCCESS/RC", "listed in Differs"},
	{"listed but no case", "", "matches no case"},
	{"listed but fails otherwise", "Statuses/REM_ACCESS_ERR/key/WRITE", `in another way\n +listed: "IBV_WC_REM_OP_ERR"\n +or: no error\n +seen: .*actual : "IBV_WC_REM_INV_REQ_ERR"`},
	{"listed but fails before", "Events/COMM_EST/RC", `in another way\n.*IBV_EVENT_QP_FATAL of A\n +seen: .*events\.go:\d+: timed out waiting for IBV_EVENT_COMM_EST of B`},
	{"listed without a result", "Statuses/SUCCESS/RC", "lacks Why or Seen"},
	{"listed twice", "Statuses/REM_ACCESS_ERR/key/WRITE", "two patterns of Differs match"},
}

// executesRefused: a refused request changes the responder's memory, and its event is lost.
const executesRefused = "executed though refused"

// TestFaultyProvider runs the suite on a faulty provider in the processes of the other tests.
func TestFaultyProvider(t *testing.T) {
	// Set by TestSuiteFindsFaults, which expects a failure.
	if rule, isFaulty := os.LookupEnv(faultEnv); isFaulty {
		verbstest.Test(t, faultyPair(rule))
	}
}

// A wrapper without a fault passes the suite.
func TestPassThroughProviderPasses(t *testing.T) { verbstest.Test(t, faultyPair("")) }

// slowDrain is not a fault: the send queue drains after Modify has returned, even if it is empty.
const slowDrain = "drains slowly"

func TestSlowDrainPasses(t *testing.T) { verbstest.Test(t, faultyPair(slowDrain)) }

func TestSuiteFindsFaults(t *testing.T) {
	for _, r := range faults {
		t.Run(r.rule+"/"+r.test, func(t *testing.T) {
			t.Parallel()
			out, err := runFaulty(r.rule, r.test)
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), "the suite did not find the fault: %v\n%s", err, out)
			require.Contains(t, out, "--- FAIL: TestFaultyProvider")
			require.Regexp(t, r.says, out)
		})
	}
}

// faultyPair returns a maker of simulated devices that break a rule. Without a rule they have no
// fault.
func faultyPair(rule string) verbstest.Maker {
	return func(t testing.TB) *verbstest.Pair {
		f := simhca.NewFabric(simhca.Config{Virtual: true})
		n := f.NewNode(simhca.DeviceConfig{Name: "sim0"}, simhca.DeviceConfig{Name: "sim1"})
		b := &faultyProvider{Provider: n, rule: rule}
		p := &verbstest.Pair{PortA: 1, PortB: 1, GIDA: 1, GIDB: 1, Provider: b, Step: func() { f.Advance() }, Patience: 5 * time.Second}
		if rule != "" {
			p.Patience = 300 * time.Millisecond
		}
		p.Differs = listed(rule)
		p.Injector.Link = func(dev verbs.Device, port int, up bool) { n.HCA(dev.Name()).SetLink(port, up) }
		p.Injector.ShortMTU = func(dev verbs.Device, port int) (restore func()) {
			n.HCA(dev.Name()).SetMTU(port, verbs.MTU1024)
			return func() { n.HCA(dev.Name()).SetMTU(port, verbs.MTU4096) }
		}
		var err error
		p.A, err = b.Open("sim0")
		require.NoError(t, err)
		p.B, err = b.Open("sim1")
		require.NoError(t, err)
		if rule == listedEvent { // link events of an earlier case arrive late
			n.HCA("sim1").SetLink(1, false)
			n.HCA("sim1").SetLink(1, true)
		}
		return p
	}
}

// Rules with the prefix "listed" have a list of differences. All lists except the lists of these
// three rules are wrong.
const (
	listedStatus  = "listed, status"
	listedEvent   = "listed, event lost"
	listedMayPass = "listed, may pass"
)

// listed returns the list of differences of a rule.
func listed(rule string) map[string]verbstest.Difference {
	status := verbstest.Difference{Why: "known", Seen: []string{"another way", `expected: "IBV_WC_REM_ACCESS_ERR" actual : "IBV_WC_REM_INV_REQ_ERR"`}}
	switch rule {
	case listedStatus:
		return map[string]verbstest.Difference{"Statuses/REM_ACCESS_ERR/key/*": status}
	case listedEvent:
		return map[string]verbstest.Difference{"Events/COMM_EST/[RU]C": {Why: "known",
			Seen: []string{"timed out waiting for IBV_EVENT_COMM_EST of B; A is RTS, B is RTR; events of A [], of B []"}}}
	case listedMayPass:
		status.MayPass = true
		return map[string]verbstest.Difference{"Statuses/SUCCESS/*": status}
	case "listed but passes":
		return map[string]verbstest.Difference{"Statuses/SUCCESS/*": status}
	case "listed but no case":
		return map[string]verbstest.Difference{"Statuses/SUCCESS/XRC": status}
	case "listed but fails otherwise":
		status.Seen = []string{`"IBV_WC_REM_OP_ERR"`, "no error"}
		return map[string]verbstest.Difference{"Statuses/REM_ACCESS_ERR/key/*": status}
	case "listed but fails before":
		return map[string]verbstest.Difference{"Events/COMM_EST/*": {Why: "known", Seen: []string{"timed out waiting for IBV_EVENT_QP_FATAL of A"}}}
	case "listed without a result":
		return map[string]verbstest.Difference{"Statuses/SUCCESS/*": {Why: "known"}}
	case "listed twice":
		return map[string]verbstest.Difference{"Statuses/REM_ACCESS_ERR/key/*": status, "Statuses/REM_ACCESS_ERR/*/WRITE": status}
	}
	return nil
}

// TestKnownDifferencePasses checks that a case that fails as listed, or may pass and does, does not
// fail the suite.
func TestKnownDifferencePasses(t *testing.T) {
	for _, r := range []struct{ rule, test, says string }{
		{listedStatus, "Statuses/REM_ACCESS_ERR/key/WRITE", "differs: known"},
		{listedEvent, "Events/COMM_EST/RC", "differs: known"},
		{listedMayPass, "Statuses/SUCCESS/RC", "passes this time; otherwise: known"},
	} {
		t.Run(r.rule, func(t *testing.T) {
			t.Parallel()
			out, err := runFaulty(r.rule, r.test)
			require.NoError(t, err, "%s", out)
			require.Regexp(t, "--- PASS: TestFaultyProvider/"+r.test, out)
			require.Contains(t, out, r.says)
		})
	}
}

// runFaulty runs a case of TestFaultyProvider, or all if test is empty, in its own process.
func runFaulty(rule, test string) (string, error) {
	pattern := "^TestFaultyProvider$"
	if test != "" {
		pattern += "/^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run="+pattern, "-test.timeout=300s")
	cmd.Env = append(os.Environ(), faultEnv+"="+rule)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

type faultyProvider struct {
	verbs.Provider
	rule string
}

func (b *faultyProvider) Open(name string) (verbs.Device, error) {
	if b.rule == "opens anything" && name == "no-such-device" {
		name = "sim0"
	}
	inner, err := b.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyDevice{Device: inner, rule: b.rule, cqs: map[verbs.CQ]*faultyCQ{}, qps: map[verbs.QP]*faultyQP{}}, nil
}

// badStatus reports whether the rule replaces REM_ACCESS_ERR by another status.
func (d *faultyDevice) badStatus() bool {
	return slices.Contains([]string{"status", listedStatus, "listed but fails otherwise", "listed twice"}, d.rule)
}

// faultyDevice wraps its queue pairs and completion queues, and unwraps them in arguments.
type faultyDevice struct {
	verbs.Device
	rule   string
	cqs    map[verbs.CQ]*faultyCQ
	qps    map[verbs.QP]*faultyQP
	again  []verbs.AsyncEvent
	damage []byte // memory of the last region
}

func (d *faultyDevice) NextEvent() (verbs.AsyncEvent, bool, error) {
	if len(d.again) > 0 {
		ev := d.again[0]
		d.again = nil
		return ev, true, nil
	}
	ev, ok, err := d.Device.NextEvent()
	if !ok {
		return ev, ok, err
	}
	if q := d.qps[ev.QP]; q != nil {
		ev.QP = q
		if ev.Type == verbs.EventSQDrained {
			q.draining = 0
		}
	}
	if q := d.cqs[ev.CQ]; q != nil {
		ev.CQ = q
	}
	switch d.rule {
	case "event lost", executesRefused, listedEvent, "listed but fails before":
		if d.rule == listedEvent && ev.Type.Info().Affiliation == verbs.AffiliationPort {
			break
		}
		d.AckEvent(ev)
		return d.NextEvent()
	case "event twice":
		d.again = append(d.again, ev)
	case "event without object":
		d.AckEvent(ev)
		ev.QP = nil
	case "event of another port":
		ev.Port++
	case "acknowledges itself":
		d.AckEvent(ev)
	}
	return ev, ok, err
}

func (d *faultyDevice) AckEvent(ev verbs.AsyncEvent) {
	if q, ok := ev.QP.(*faultyQP); ok {
		ev.QP = q.QP
	}
	if q, ok := ev.CQ.(*faultyCQ); ok {
		ev.CQ = q.CQ
	}
	d.Device.AckEvent(ev)
}

func (d *faultyDevice) AllocPD() (verbs.PD, error) {
	inner, err := d.Device.AllocPD()
	return &faultyPD{inner, d}, err
}

func (d *faultyDevice) CreateCompChannel() (verbs.CompChannel, error) {
	inner, err := d.Device.CreateCompChannel()
	return &faultyChannel{inner, d}, err
}

func (d *faultyDevice) CreateCQ(entries int, channel verbs.CompChannel) (verbs.CQ, error) {
	if ch, ok := channel.(*faultyChannel); ok {
		channel = ch.CompChannel
	}
	inner, err := d.Device.CreateCQ(entries, channel)
	if err != nil {
		return nil, err
	}
	q := &faultyCQ{CQ: inner, d: d}
	d.cqs[inner] = q
	return q, nil
}

type faultyChannel struct {
	verbs.CompChannel
	d *faultyDevice
}

func (ch *faultyChannel) NextEvent() (verbs.CQ, bool, error) {
	inner, ok, err := ch.CompChannel.NextEvent()
	if ok {
		return ch.d.cqs[inner], ok, err
	}
	if ch.d.rule == "arms always" {
		for _, q := range ch.d.cqs {
			if q.armed {
				q.armed = false
				return q, true, nil
			}
		}
	}
	return nil, false, err
}

type faultyPD struct {
	verbs.PD
	d *faultyDevice
}

func (p *faultyPD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	p.d.damage = mem
	return p.PD.RegMR(mem, access)
}

func (p *faultyPD) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	if q, ok := init.SendCQ.(*faultyCQ); ok {
		init.SendCQ = q.CQ
	}
	if q, ok := init.RecvCQ.(*faultyCQ); ok {
		init.RecvCQ = q.CQ
	}
	if p.d.rule == "unsignaled completes" {
		init.SignalAll = true
	}
	inner, err := p.PD.CreateQP(init)
	if err != nil {
		return nil, err
	}
	q := &faultyQP{QP: inner, d: p.d}
	p.d.qps[inner] = q
	return q, nil
}

type faultyCQ struct {
	verbs.CQ
	d     *faultyDevice
	armed bool
}

func (q *faultyCQ) ReqNotify(solicitedOnly bool) error {
	q.armed = true
	return q.CQ.ReqNotify(solicitedOnly)
}

func (q *faultyCQ) AckEvents(n int) {
	if q.d.rule != "arms always" {
		q.CQ.AckEvents(n)
	}
}

func (q *faultyCQ) Destroy() error {
	err := q.CQ.Destroy()
	if q.d.rule == "destroyed though busy" && errors.Is(err, verbs.ErrBusy) {
		return nil
	}
	return err
}

func (q *faultyCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := q.CQ.Poll(wcs)
	out := wcs[:0]
	for _, wc := range wcs[:n] {
		switch {
		case q.d.rule == executesRefused && wc.Status == verbs.StatusWRFlushErr:
			q.d.damage[1024] ^= 1
		case q.d.rule == "flush lost" && wc.Status == verbs.StatusWRFlushErr:
			continue
		case q.d.rule == "flush as failure" && wc.Status == verbs.StatusWRFlushErr:
			wc.Status = verbs.StatusGeneralErr
		case q.d.rule == "failure as success" && wc.Status == verbs.StatusRetryExcErr:
			wc.Status = verbs.StatusSuccess
		case q.d.badStatus() && wc.Status == verbs.StatusRemAccessErr:
			wc.Status = verbs.StatusRemInvReqErr
		case q.d.rule == "length" && wc.Opcode == verbs.WCRecv:
			wc.ByteLen++
		case q.d.rule == "immediate" && wc.Flags&verbs.WCWithImm != 0:
			wc.Imm = wc.Imm<<16 | wc.Imm>>16
		case q.d.rule == "opcode" && wc.Opcode == verbs.WCRDMARead:
			wc.Opcode = verbs.WCRDMAWrite
		case q.d.rule == "damage" && len(q.d.damage) > 0:
			q.d.damage[0] ^= 1
		}
		out = append(out, wc)
	}
	n = len(out)
	switch {
	case q.d.rule == "flush out of order" && n > 1:
		wcs[0], wcs[1] = wcs[1], wcs[0]
	case q.d.rule == "completion twice" && n > 0 && n < len(wcs):
		wcs[n] = wcs[n-1]
		n++
	}
	return n, err
}

type faultyQP struct {
	verbs.QP
	d        *faultyDevice
	draining int // number of queries that still report draining
}

func (q *faultyQP) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if q.draining > 0 && mask&verbs.AttrState != 0 && attr.State != verbs.StateErr {
		if _, err := verbs.CheckModify(q.Service(), verbs.StateSQD, attr, mask); err != nil {
			return err
		}
		return verbs.NewCallError("ibv_modify_qp", syscall.EINVAL, "the send queue is draining")
	}
	q.draining = 0
	err := q.QP.Modify(attr, mask)
	if q.d.rule == slowDrain && err == nil && mask&verbs.AttrState != 0 && attr.State == verbs.StateSQD {
		q.draining = 3
	}
	var e *verbs.TransitionError
	if errors.As(err, &e) {
		if q.d.rule == "illegal transition" && e.NoSuch || q.d.rule == "attribute missing" && e.Missing != 0 {
			return nil
		}
	}
	return err
}

func (q *faultyQP) Query() (verbs.QPAttr, error) {
	attr, err := q.QP.Query()
	switch {
	case q.d.rule == "state stays" && attr.State == verbs.StateRTS:
		attr.State = verbs.StateRTR
	case q.d.rule == "attribute changed":
		attr.Timeout++
	case q.d.rule == "draining not reported":
		attr.SQDraining = false
	case q.draining > 0:
		attr.SQDraining = true
		q.draining--
	}
	return attr, err
}

func (q *faultyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	n, err := q.QP.PostSend(wrs)
	switch {
	case q.d.rule == "post accepted" && err != nil:
		return len(wrs), nil
	case q.d.rule == "count of posts" && err != nil:
		return n + 1, err
	}
	return n, err
}

func (q *faultyQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	n, err := q.QP.PostRecv(wrs)
	if q.d.rule == "never full" && errors.Is(err, verbs.ErrQueueFull) {
		return len(wrs), nil
	}
	return n, err
}
