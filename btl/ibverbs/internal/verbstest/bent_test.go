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

	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/ibverbs/internal/verbstest"
)

// A bent provider breaks one rule, and the suite has to notice. Each runs in a process of its own, because there the
// suite fails.

// envBent says which rule TestBent's provider breaks; none if it is not set.
const envBent = "VERBSTEST_BENT"

var bentRules = []struct {
	rule string
	test string // that has to fail, below TestBent
	says string // what its output has to contain
}{
	{"illegal transition", "Transitions/RC/RTR-to-SQD", "Expected error|An error is expected"},
	{"attribute missing", "Transitions/RC/INIT-to-RTR-with-wrong-attributes", "Expected error|An error is expected"},
	{"state stays", "Transitions/RC/RTR-to-RTS", "expected: \"RTS\""},
	{"attribute changed", "Transitions/RC/RTR-to-RTS", "as Query tells it"},
	{"post taken", "Posting/RC/RTR/send", "Expected error|An error is expected"},
	{"flush lost", "Posting/RC/ERR/send", "waited too long"},
	{"flush lost", "Queues/flush/behind-SQD", "waited too long"},
	{"flush out of order", "Queues/flush/behind-SQD", "which request"},
	{"flush as failure", "Statuses/WR_FLUSH_ERR/behind-a-failure/RC", "IBV_WC_WR_FLUSH_ERR"},
	{"status", "Statuses/REM_ACCESS_ERR/key/WRITE", "IBV_WC_REM_ACCESS_ERR"},
	{"status", "Sights/READ/bad-key", "what the requester sees"},
	{"event lost", "Events/COMM_EST/RC", "waited too long"},
	{"event lost", "Sights/WRITE/bad-key", "waited too long"},
	{"event twice", "Events/COMM_EST/RC", "how often it was told"},
	{"event without object", "Events/SQ_DRAINED/idle", "waited too long"},
	{"draining not told", "Events/SQ_DRAINED/behind-a-send", "a send is under way, but draining is false, events 0"},
	{"event of another port", "Events/PORT_ERR/link", "waited too long"},
	{"length", "Data/RC/MTU-1024/SEND", "bytes received"},
	{"immediate", "Data/RC/MTU-1024/SEND_WITH_IMM", "Not equal"},
	{"opcode", "Data/RC/MTU-1024/READ", "opcode of the completion"},
	{"damage", "Data/RC/MTU-1024/WRITE", "not what was sent"},
	{"damage", "Queues/order/many", "message"},
	{"unsignaled completes", "Queues/signal/unsignaled", "which request"},
	{"completion twice", "Queues/order/mixed", "which request"},
	{"count of posts", "Queues/batch/malformed-send", "those before it are taken"},
	{"never full", "Queues/full/receive", "An error|not all was taken|never full|expected"},
	{"arms always", "Completions/channel/not-for-what-is-there", "what is there already"},
	{"destroyed though busy", "Objects/busy/CQ-of-sends", "Expected error with"},
	{"acknowledges itself", "Objects/event/acknowledge-before-destroy", "is not acknowledged"},
	{"opens anything", "Objects/provider/names", "Expected error with"},
	{"listed but passes", "Statuses/SUCCESS/RC", "listed as one that differs"},
	{"listed but no case", "", "is no case"},
	{"listed but fails otherwise", "Statuses/REM_ACCESS_ERR/key/WRITE", `in another way\n +listed: "IBV_WC_REM_OP_ERR"\n +or: no error\n +seen: .*actual : "IBV_WC_REM_INV_REQ_ERR"`},
	{"listed but fails before", "Events/COMM_EST/RC", `in another way\n.*IBV_EVENT_QP_FATAL of A\n +seen: .*events\.go:\d+: waited too long for IBV_EVENT_COMM_EST of B`},
	{"listed without a result", "Statuses/SUCCESS/RC", "does not say why, or what is seen"},
	{"listed twice", "Statuses/REM_ACCESS_ERR/key/WRITE", "listed twice"},
}

func TestBent(t *testing.T) {
	if rule, bent := os.LookupEnv(envBent); bent { // set by TestSuiteNotices, which expects it to fail
		verbstest.Test(t, bentPair(rule))
	}
}

// TestStraight: what only passes on is no fault.
func TestStraight(t *testing.T) { verbstest.Test(t, bentPair("")) }

// slowDrain is no fault: the send queue drains after Modify has returned, also if nothing is under
// way.
const slowDrain = "drains slowly"

func TestConformanceOfSlowDrain(t *testing.T) { verbstest.Test(t, bentPair(slowDrain)) }

func TestSuiteNotices(t *testing.T) {
	for _, r := range bentRules {
		t.Run(r.rule+"/"+r.test, func(t *testing.T) {
			t.Parallel()
			out, err := runBent(r.rule, r.test)
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), "the suite did not notice: %v\n%s", err, out)
			require.Contains(t, out, "--- FAIL: TestBent")
			require.Regexp(t, r.says, out)
		})
	}
}

// bentPair makes a pair of simulated devices that break a rule. Without one they only pass on.
func bentPair(rule string) verbstest.Maker {
	return func(t testing.TB) *verbstest.Pair {
		f := simhca.NewFabric(simhca.Config{Virtual: true})
		n := f.NewNode(simhca.DeviceConfig{Name: "sim0"}, simhca.DeviceConfig{Name: "sim1"})
		b := &bentProvider{Provider: n, rule: rule}
		p := &verbstest.Pair{PortA: 1, PortB: 1, GIDA: 1, GIDB: 1, Provider: b, Step: func() { f.Advance() }, Patience: 5 * time.Second}
		if rule != "" {
			p.Patience = 300 * time.Millisecond
		}
		p.Differs = listed(rule)
		p.Injector.Link = func(dev verbs.Device, port int, up bool) { n.HCA(dev.Name()).SetLink(port, up) }
		var err error
		p.A, err = b.Open("sim0")
		require.NoError(t, err)
		p.B, err = b.Open("sim1")
		require.NoError(t, err)
		if rule == listedEvent { // what the case before has done to the link is told only now
			n.HCA("sim1").SetLink(1, false)
			n.HCA("sim1").SetLink(1, true)
		}
		return p
	}
}

// Rules whose names begin with "listed" have a list of what differs. All but the first two are
// wrong.
const (
	listedStatus = "listed, status"
	listedEvent  = "listed, event lost"
)

// listed is the list that a rule has.
func listed(rule string) map[string]verbstest.Difference {
	status := verbstest.Difference{Why: "it is said to", Seen: []string{"another way", `expected: "IBV_WC_REM_ACCESS_ERR" actual : "IBV_WC_REM_INV_REQ_ERR"`}}
	switch rule {
	case listedStatus:
		return map[string]verbstest.Difference{"Statuses/REM_ACCESS_ERR/key/*": status}
	case listedEvent:
		return map[string]verbstest.Difference{"Events/COMM_EST/[RU]C": {Why: "it is said to",
			Seen: []string{"waited too long for IBV_EVENT_COMM_EST of B; A is RTS, B is RTR; events of A [], of B []"}}}
	case "listed but passes":
		return map[string]verbstest.Difference{"Statuses/SUCCESS/*": status}
	case "listed but no case":
		return map[string]verbstest.Difference{"Statuses/SUCCESS/XRC": status}
	case "listed but fails otherwise":
		status.Seen = []string{`"IBV_WC_REM_OP_ERR"`, "no error"}
		return map[string]verbstest.Difference{"Statuses/REM_ACCESS_ERR/key/*": status}
	case "listed but fails before":
		return map[string]verbstest.Difference{"Events/COMM_EST/*": {Why: "it is said to", Seen: []string{"waited too long for IBV_EVENT_QP_FATAL of A"}}}
	case "listed without a result":
		return map[string]verbstest.Difference{"Statuses/SUCCESS/*": {Why: "it is said to"}}
	case "listed twice":
		return map[string]verbstest.Difference{"Statuses/REM_ACCESS_ERR/key/*": status, "Statuses/REM_ACCESS_ERR/*/WRITE": status}
	}
	return nil
}

// TestListed: a case that fails as the list says is no failure of the suite.
func TestListed(t *testing.T) {
	for _, r := range []struct{ rule, test string }{
		{listedStatus, "Statuses/REM_ACCESS_ERR/key/WRITE"}, {listedEvent, "Events/COMM_EST/RC"},
	} {
		t.Run(r.rule, func(t *testing.T) {
			t.Parallel()
			out, err := runBent(r.rule, r.test)
			require.NoError(t, err, "%s", out)
			require.Regexp(t, "--- PASS: TestBent/"+r.test, out)
			require.Contains(t, out, "differs: it is said to")
		})
	}
}

// runBent runs a case of TestBent, or all if test is empty, in a process of its own.
func runBent(rule, test string) (string, error) {
	pattern := "^TestBent$"
	if test != "" {
		pattern += "/^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run="+pattern, "-test.timeout=60s")
	cmd.Env = append(os.Environ(), envBent+"="+rule)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

type bentProvider struct {
	verbs.Provider
	rule string
}

func (b *bentProvider) Open(name string) (verbs.Device, error) {
	if b.rule == "opens anything" && name == "no-such-device" {
		name = "sim0"
	}
	inner, err := b.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return &bentDevice{Device: inner, rule: b.rule, cqs: map[verbs.CQ]*bentCQ{}, qps: map[verbs.QP]*bentQP{}}, nil
}

// badStatus says whether REM_ACCESS_ERR is told as another status.
func (d *bentDevice) badStatus() bool {
	return slices.Contains([]string{"status", listedStatus, "listed but fails otherwise", "listed twice"}, d.rule)
}

// bentDevice wraps queue pairs and completion queues; what takes or names one is passed on with what is inside.
type bentDevice struct {
	verbs.Device
	rule   string
	cqs    map[verbs.CQ]*bentCQ
	qps    map[verbs.QP]*bentQP
	again  []verbs.AsyncEvent
	damage []byte // the region made last
}

func (d *bentDevice) NextEvent() (verbs.AsyncEvent, bool, error) {
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
	case "event lost", listedEvent, "listed but fails before":
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

func (d *bentDevice) AckEvent(ev verbs.AsyncEvent) {
	if q, ok := ev.QP.(*bentQP); ok {
		ev.QP = q.QP
	}
	if q, ok := ev.CQ.(*bentCQ); ok {
		ev.CQ = q.CQ
	}
	d.Device.AckEvent(ev)
}

func (d *bentDevice) AllocPD() (verbs.PD, error) {
	inner, err := d.Device.AllocPD()
	return &bentPD{inner, d}, err
}

func (d *bentDevice) CreateCompChannel() (verbs.CompChannel, error) {
	inner, err := d.Device.CreateCompChannel()
	return &bentChannel{inner, d}, err
}

func (d *bentDevice) CreateCQ(entries int, channel verbs.CompChannel) (verbs.CQ, error) {
	if ch, ok := channel.(*bentChannel); ok {
		channel = ch.CompChannel
	}
	inner, err := d.Device.CreateCQ(entries, channel)
	if err != nil {
		return nil, err
	}
	q := &bentCQ{CQ: inner, d: d}
	d.cqs[inner] = q
	return q, nil
}

type bentChannel struct {
	verbs.CompChannel
	d *bentDevice
}

func (ch *bentChannel) NextEvent() (verbs.CQ, bool, error) {
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

type bentPD struct {
	verbs.PD
	d *bentDevice
}

func (p *bentPD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	p.d.damage = mem
	return p.PD.RegMR(mem, access)
}

func (p *bentPD) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	if q, ok := init.SendCQ.(*bentCQ); ok {
		init.SendCQ = q.CQ
	}
	if q, ok := init.RecvCQ.(*bentCQ); ok {
		init.RecvCQ = q.CQ
	}
	if p.d.rule == "unsignaled completes" {
		init.SignalAll = true
	}
	inner, err := p.PD.CreateQP(init)
	if err != nil {
		return nil, err
	}
	q := &bentQP{QP: inner, d: p.d}
	p.d.qps[inner] = q
	return q, nil
}

type bentCQ struct {
	verbs.CQ
	d     *bentDevice
	armed bool
}

func (q *bentCQ) ReqNotify(solicitedOnly bool) error {
	q.armed = true
	return q.CQ.ReqNotify(solicitedOnly)
}

func (q *bentCQ) AckEvents(n int) {
	if q.d.rule != "arms always" {
		q.CQ.AckEvents(n)
	}
}

func (q *bentCQ) Destroy() error {
	err := q.CQ.Destroy()
	if q.d.rule == "destroyed though busy" && errors.Is(err, verbs.ErrBusy) {
		return nil
	}
	return err
}

func (q *bentCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := q.CQ.Poll(wcs)
	out := wcs[:0]
	for _, wc := range wcs[:n] {
		switch {
		case q.d.rule == "flush lost" && wc.Status == verbs.StatusWRFlushErr:
			continue
		case q.d.rule == "flush as failure" && wc.Status == verbs.StatusWRFlushErr:
			wc.Status = verbs.StatusGeneralErr
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

type bentQP struct {
	verbs.QP
	d        *bentDevice
	draining int // so many times Query still says so
}

func (q *bentQP) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
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

func (q *bentQP) Query() (verbs.QPAttr, error) {
	attr, err := q.QP.Query()
	switch {
	case q.d.rule == "state stays" && attr.State == verbs.StateRTS:
		attr.State = verbs.StateRTR
	case q.d.rule == "attribute changed":
		attr.Timeout++
	case q.d.rule == "draining not told":
		attr.SQDraining = false
	case q.draining > 0:
		attr.SQDraining = true
		q.draining--
	}
	return attr, err
}

func (q *bentQP) PostSend(wrs []verbs.SendWR) (int, error) {
	n, err := q.QP.PostSend(wrs)
	switch {
	case q.d.rule == "post taken" && err != nil:
		return len(wrs), nil
	case q.d.rule == "count of posts" && err != nil:
		return n + 1, err
	}
	return n, err
}

func (q *bentQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	n, err := q.QP.PostRecv(wrs)
	if q.d.rule == "never full" && errors.Is(err, verbs.ErrQueueFull) {
		return len(wrs), nil
	}
	return n, err
}
