package comm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/btl/sm"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// TestShortPathsDoWhatTheGeneralPathDoes runs random programs of two ranks twice: with the shortest
// paths of short messages, and on rails whose endpoints do not offer them. Every call has the same
// result in both, and in the end all counts and queues are the same.
func TestShortPathsDoWhatTheGeneralPathDoes(t *testing.T) {
	for name, over := range map[string]shortTransport{"sm": overSM, "loop": overLoop} {
		t.Run(name, func(t *testing.T) { testShortPrograms(t, over) })
	}
}

func testShortPrograms(t *testing.T, over shortTransport) {
	programs, steps := race.Some(16), 1500 // a program of each mix, or several
	for seed := range programs {
		short, general := newShortProgram(t, uint64(seed), over, unchanged), newShortProgram(t, uint64(seed), over, generalOnly)
		for step := range steps {
			want, got := general.step(), short.step()
			require.Equal(t, want, got, "seed %d, step %d", seed, step)
		}
		require.Equal(t, general.finish(), short.finish(), "seed %d", seed)
		for rank := range short.worlds {
			require.NotZero(t, short.stats(rank).SentInline)
			require.NotZero(t, short.stats(rank).Unexpected)
		}
	}
}

func unchanged(ep btl.Endpoint) btl.Endpoint { return ep }

// generalOnly is an endpoint without the capabilities of the shortest paths.
func generalOnly(ep btl.Endpoint) btl.Endpoint {
	type onlyGetter struct {
		btl.Endpoint
		btl.Inliner
		btl.Getter
	}
	g := onlyGetter{ep, ep.(btl.Inliner), ep.(btl.Getter)}
	if putter, ok := ep.(btl.Putter); ok {
		return struct {
			onlyGetter
			btl.Putter
		}{g, putter}
	}
	return g
}

// shortTransport makes a function that opens the module of each rank of a world.
type shortTransport func(t *testing.T) func(j *job, wakeup *progress.PipeWakeup) []btl.Module

func overSM(t *testing.T) func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
	return func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
		m, err := sm.New(sm.Config{Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup})
		require.NoError(t, err)
		return []btl.Module{m}
	}
}

func overLoop(t *testing.T) func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
	const most = 16 << 10 // all messages are sent inline
	rail := loop.RailConfig{EagerBytes: most, MaxSendBytes: most, InlineBytes: most}
	fabric, err := loop.NewFabric(loop.Config{Ranks: 2, Slots: 1024, Rail: []loop.RailConfig{rail}})
	require.NoError(t, err)
	return func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
		m, err := fabric.Module(j.rank, 0, j.pml, wakeup)
		require.NoError(t, err)
		return []btl.Module{m}
	}
}

// shortProgram is a program of two ranks that one goroutine runs. It knows which messages are in
// flight, so that no call waits forever.
type shortProgram struct {
	t      *testing.T
	rng    *rand.Rand
	calls  []shortCall // to choose from
	worlds []*Comm
	flows  [2]shortFlow // by sender
	// persistent sends and receives of each rank, whose buffer is in buffers.
	sends, recvs [2]request.Request
	out, in      [2][]byte
}

type shortCall uint8

const (
	shortSend shortCall = iota
	shortRecv
	shortPost
	shortTest
	shortReceiveAll
	shortPersistent
	shortWindow
)

// Programs in which messages come before their receives, after them, and both.
var shortMixes = [][]shortCall{
	{shortSend, shortSend, shortRecv, shortRecv, shortPersistent, shortReceiveAll},
	{shortPost, shortPost, shortPost, shortPost, shortSend, shortTest, shortReceiveAll, shortPersistent},
	{shortSend, shortSend, shortRecv, shortPost, shortTest, shortReceiveAll, shortPersistent},
	{shortSend, shortPost, shortWindow, shortReceiveAll},
}

// shortFlow is the messages from one rank to the other.
type shortFlow struct {
	sent     [shortTags][]shortMessage // not received, in order, by tag
	open     []openRecv                // receives that were posted and not waited for, in order
	underWay int                       // bytes sent since the receiver has received everything
	count    int
}

type shortMessage struct{ id, length int }

type openRecv struct {
	tag int // or AnyTag
	buf []byte
	req request.Request
}

const shortTags = 3

func newShortProgram(t *testing.T, seed uint64, over shortTransport, wrap func(btl.Endpoint) btl.Endpoint) *shortProgram {
	p := &shortProgram{t: t, rng: rand.New(rand.NewPCG(seed, 3)), calls: shortMixes[seed%uint64(len(shortMixes))]}
	p.worlds = localWorldOf(t, 2, over(t), wrap, WithSetting("pml.unexpected.bytes", "128K"), WithSetting("check", "false"))
	for rank, w := range p.worlds {
		p.out[rank], p.in[rank] = make([]byte, 8), make([]byte, 8)
		var err, err2 error
		p.sends[rank], err = SendInit(w, p.out[rank], 1-rank, shortTags)
		p.recvs[rank], err2 = RecvInit(w, p.in[rank], 1-rank, shortTags)
		require.NoError(t, errors.Join(err, err2))
	}
	for rank, w := range p.worlds { // the first message waits for the connection
		var done bool
		r, err := Isend(w, []byte{1}, 1-rank, 0)
		for !done && err == nil {
			p.turns()
			_, done, err = r.Test()
		}
		require.NoError(t, err)
		p.flows[rank].sent[0] = append(p.flows[rank].sent[0], shortMessage{1, 1})
	}
	_, _ = p.receiveAll(0), p.receiveAll(1)
	return p
}

func (p *shortProgram) stats(rank int) pml.Stats {
	p.worlds[rank].job.eng.Lock()
	defer p.worlds[rank].job.eng.Unlock()
	return p.worlds[rank].job.pml.Stats()
}

func (p *shortProgram) turns() {
	for range 3 {
		for _, w := range p.worlds {
			w.job.eng.Lock()
			w.job.eng.Turn()
			w.job.eng.Unlock()
		}
	}
}

// payload is the contents of a message.
func (m shortMessage) payload() []byte {
	b := make([]byte, m.length)
	for i := range b {
		b[i] = byte(m.id*7 + i)
	}
	return b
}

// step makes one call, and describes the result.
func (p *shortProgram) step() string {
	rank := p.rng.IntN(2)
	w, from := p.worlds[rank], 1-rank
	out, in := &p.flows[rank], &p.flows[from]
	tag := p.rng.IntN(shortTags)
	if p.rng.IntN(4) == 0 {
		p.turns()
	}
	switch p.calls[p.rng.IntN(len(p.calls))] {
	case shortSend: // blocking and nonblocking sends; some messages do not fit a slot
		m := shortMessage{out.count, []int{8, 0, 1, p.rng.IntN(300), p.rng.IntN(3000), p.rng.IntN(9000)}[p.rng.IntN(6)]}
		if out.underWay += m.length + 64; out.underWay > 20<<10 { // no call waits for credit
			out.underWay -= m.length + 64
			return p.receiveAll(from)
		}
		out.count++
		out.sent[tag] = append(out.sent[tag], m)
		if p.rng.IntN(2) == 0 {
			return fmt.Sprint("send ", m, Send(w, m.payload(), from, tag))
		}
		r, err := Isend(w, m.payload(), from, tag)
		st, werr := r.Wait()
		return fmt.Sprint("isend ", m, err, st, werr)
	case shortRecv: // a receive whose message is sent, in a buffer that may be too short
		before := 0 // messages of the tag for receives that were posted before
		for _, o := range in.open {
			if o.tag == AnyTag {
				return "another receive may take the message"
			}
			if o.tag == tag {
				before++
			}
		}
		if len(in.sent[tag]) <= before {
			return "nothing to receive"
		}
		m := in.sent[tag][before]
		in.sent[tag] = slices.Delete(in.sent[tag], before, before+1)
		buf := make([]byte, max(m.length+p.rng.IntN(3)-1, 0))
		st, err := Recv(w, buf, p.source(from), tag)
		return fmt.Sprint("recv ", m, st, err, bytes.Equal(buf, m.payload()[:min(len(buf), m.length)]))
	case shortPost: // receives that are posted early
		if len(in.open) > 20 {
			return p.receiveAll(rank)
		}
		at := tag
		if p.rng.IntN(5) == 0 {
			at = AnyTag
		}
		buf := make([]byte, 9000)
		if p.rng.IntN(12) == 0 {
			buf = buf[:1]
		}
		r, err := Irecv(w, buf, p.source(from), at)
		in.open = append(in.open, openRecv{at, buf, r})
		return fmt.Sprint("irecv ", at, err)
	case shortTest: // of the oldest one
		if len(in.open) == 0 {
			return "nothing to test"
		}
		p.turns()
		st, done, err := in.open[0].req.GetStatus()
		return fmt.Sprint("status ", done, st, err)
	case shortReceiveAll:
		return p.receiveAll(rank)
	case shortWindow:
		return p.receiveAll(rank) + p.window(rank)
	default: // persistent requests, in lockstep
		for _, o := range in.open {
			if o.tag == AnyTag { // it would take the message
				return p.receiveAll(rank)
			}
		}
		copy(p.out[from], fmt.Sprint(out.count))
		clear(p.in[rank])
		first, second := p.sends[from], p.recvs[rank]
		if p.rng.IntN(2) == 0 {
			first, second = second, first
		}
		err := errors.Join(first.Start(), second.Start())
		_, serr := p.sends[from].Wait()
		st, rerr := p.recvs[rank].Wait()
		return fmt.Sprint("persistent ", err, serr, rerr, st, string(p.in[rank]))
	}
}

// source is a peer as a receive may name it.
func (p *shortProgram) source(peer int) int {
	if p.rng.IntN(6) == 0 {
		return AnySource
	}
	return peer
}

// receiveAll sends what posted receives of a rank need, and completes them and all messages to it.
func (p *shortProgram) receiveAll(rank int) string {
	w, from := p.worlds[rank], 1-rank
	in := &p.flows[from]
	said := "all:"
	for range in.open {
		for tag := range shortTags { // enough for receives of any tag too
			m := shortMessage{in.count, 8}
			in.count++
			in.sent[tag] = append(in.sent[tag], m)
			said += fmt.Sprint(Send(p.worlds[from], m.payload(), rank, tag))
		}
	}
	order := p.rng.Perm(len(in.open))
	if p.rng.IntN(2) == 0 {
		slices.Sort(order)
	}
	reqs := make([]request.Request, len(in.open))
	for i, o := range order {
		reqs[i] = in.open[o].req
	}
	sts := p.waitAll(reqs)
	for i, o := range order {
		said += fmt.Sprintf(" %v %v %x", order[i], sts[i], bytes.TrimRight(in.open[o].buf, "\x00"))
	}
	in.open = nil
	buf := make([]byte, 9000)
	for {
		st, there, err := w.Iprobe(from, AnyTag)
		if err != nil || !there {
			break
		}
		st, err = Recv(w, buf[:st.Bytes], from, st.Tag)
		said += WithoutLines(fmt.Sprint(" ", st, err))
	}
	for tag := range in.sent {
		in.sent[tag] = nil
	}
	in.underWay = 0
	p.turns() // credit
	return said
}

// waitAll waits for all requests, also after failures, and returns their statuses.
func (p *shortProgram) waitAll(reqs []request.Request) []request.Status {
	sts := make([]request.Status, len(reqs))
	// After a failure the other requests may be complete or not.
	for err := request.WaitAllStatus(reqs, sts); err != nil; {
		require.ErrorIs(p.t, err, ErrInStatus)
		again := make([]request.Status, len(reqs))
		err = request.WaitAllStatus(reqs, again)
		for i := range sts {
			if errors.Is(sts[i].Err, ErrPending) {
				sts[i] = again[i]
			}
		}
	}
	for i := range sts {
		if e := (*Error)(nil); errors.As(sts[i].Err, &e) {
			e.Line = "" // the calls find different requests complete
		}
	}
	return sts
}

// window sends a rank, which awaits nothing else, many messages of one tag or two, and receives
// them by requests of all kinds. Some requests are in the list twice, and some do not wait for a
// message.
func (p *shortProgram) window(rank int) string {
	w, from := p.worlds[rank], 1-rank
	var sends, recvs []request.Request
	var bufs [][]byte
	said, isCut := "window:", false
	tags, cut := 1+p.rng.IntN(2), p.rng.IntN(3) == 0
	lengths := make([]int, 1+p.rng.IntN(100))
	if p.rng.IntN(8) == 0 {
		// More than are received without a turn of progress, and than a quarter of a ring.
		lengths = make([]int, 150)
	}
	for i := range lengths {
		lengths[i] = []int{8, 8, 8, 0, p.rng.IntN(100), p.rng.IntN(200)}[p.rng.IntN(6)]
	}
	post := func(n int) {
		for range n {
			i := len(bufs)
			buf := make([]byte, 200)
			if cut && p.rng.IntN(20) == 0 {
				buf, isCut = buf[:4], true
			}
			var r request.Request
			var err error
			if p.rng.IntN(5) == 0 {
				r, err = RecvInit(w, buf, from, i%tags)
				err = errors.Join(err, r.Start())
			} else {
				r, err = Irecv(w, buf, from, i%tags)
			}
			require.NoError(p.t, err)
			recvs, bufs = append(recvs, r), append(bufs, buf)
		}
	}
	post(p.rng.IntN(2) * p.rng.IntN(len(lengths)+1))
	for i, length := range lengths {
		r, err := Isend(p.worlds[from], shortMessage{i, length}.payload(), rank, i%tags)
		require.NoError(p.t, err)
		sends = append(sends, r)
		if p.rng.IntN(40) == 0 {
			p.turns()
		}
	}
	post(len(lengths) - len(recvs))
	var all []request.Request
	for _, r := range recvs {
		switch p.rng.IntN(30) {
		case 0:
			all = append(all, r, r)
		case 1:
			all = append(all, request.Request{}, r)
		case 2:
			out := &p.flows[rank]
			m := shortMessage{out.count, 8}
			out.count++
			out.underWay += m.length + 64
			out.sent[0] = append(out.sent[0], m)
			s, err := Isend(w, m.payload(), from, 0)
			require.NoError(p.t, err)
			all = append(all, s, r)
		default:
			all = append(all, r)
		}
	}
	if isCut || p.rng.IntN(2) == 0 {
		said += fmt.Sprint(p.waitAll(all))
	} else {
		said += fmt.Sprint(request.WaitAll(all...))
	}
	switch p.rng.IntN(3) {
	case 0:
		said += fmt.Sprint(request.WaitAll(sends...))
	case 1:
		said += fmt.Sprint(p.waitAll(sends))
	default:
		for range len(sends) {
			i, st, err := request.WaitAny(sends...)
			said += fmt.Sprint(" ", i, st, err)
		}
	}
	for i, r := range recvs {
		said += fmt.Sprintf(" %x %v", bytes.TrimRight(bufs[i], "\x00"), r.IsNull())
		if !r.IsNull() {
			require.NoError(p.t, r.Free())
		}
	}
	p.turns() // credit
	return said
}

// finish receives everything and describes what remains.
func (p *shortProgram) finish() string {
	said := p.receiveAll(0) + p.receiveAll(1)
	for rank := range p.worlds {
		st := p.stats(rank)
		// The general path may look at messages earlier than their receives are posted, because one
		// turn takes several.
		st.Unexpected, st.UnexpectedPeakBytes = 0, 0
		require.NoError(p.t, errors.Join(p.sends[rank].Free(), p.recvs[rank].Free()))
		said += fmt.Sprintf(" %+v", st)
	}
	return said
}

// A receive of any tag that was posted first takes the message, though one with its tag waits.
func TestEarlierReceiveOfAnyTagIsMatchedFirst(t *testing.T) {
	p := newShortProgram(t, 0, overSM, unchanged)
	var bufs [2][]byte
	var reqs [2]request.Request
	for i, tag := range []int{AnyTag, 1} {
		bufs[i] = make([]byte, 8)
		var err error
		reqs[i], err = Irecv(p.worlds[1], bufs[i], 0, tag)
		require.NoError(t, err)
	}
	for _, s := range []string{"first   ", "second  "} {
		require.NoError(t, Send(p.worlds[0], []byte(s), 1, 1))
	}
	require.NoError(t, request.WaitAll(reqs[1], reqs[0]))
	require.Equal(t, "first   second  ", string(bufs[0])+string(bufs[1]))
	_, _ = p.sends[0].Free(), p.recvs[1].Free()
}

// Start of an Isend that completed at once is an error, and names the send.
func TestStartOfCompleteIsendFails(t *testing.T) {
	p := newShortProgram(t, 0, overSM, unchanged)
	before := p.stats(0).SentInline
	r, err := Isend(p.worlds[0], []byte("x"), 1, 2)
	require.NoError(t, err)
	require.Equal(t, before+1, p.stats(0).SentInline)
	for _, err := range []error{r.Start(), request.StartAll(r)} {
		require.ErrorIs(t, err, ErrRequest)
		require.ErrorContains(t, err, "isend")
	}
	_, err = r.Wait()
	require.NoError(t, err)
	_, err = Recv(p.worlds[1], make([]byte, 1), 0, 2)
	require.NoError(t, err)
	_, _ = p.sends[0].Free(), p.recvs[1].Free()
}

// A receiver that always finds its next message still makes progress turns, so timers and other
// peers are served.
func TestStreamOfShortMessagesMakesProgress(t *testing.T) {
	const count = 4096
	buf := make([]byte, 8)
	for name, recv := range map[string]func(w *Comm) error{
		"Recv": func(w *Comm) error { _, err := Recv(w, buf, 0, 0); return err },
		"Wait": func(w *Comm) error {
			r, err := Irecv(w, buf, 0, 0)
			_, werr := r.Wait()
			return errors.Join(err, werr)
		},
		"WaitAll": func(w *Comm) error {
			r, err := Irecv(w, buf, 0, 0)
			return errors.Join(err, request.WaitAll(r))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newShortProgram(t, 0, overSM, unchanged)
			eng := p.worlds[1].job.eng
			ran := false
			eng.Lock()
			before := eng.Counters().Turns
			eng.After(0, func() { ran = true })
			eng.Unlock()
			for range count {
				require.NoError(t, Send(p.worlds[0], buf, 1, 0))
				sender := p.worlds[0].job.eng
				sender.Lock()
				sender.Turn() // credit
				sender.Unlock()
				require.NoError(t, recv(p.worlds[1]))
			}
			eng.Lock()
			turns := eng.Counters().Turns - before
			eng.Unlock()
			require.GreaterOrEqual(t, turns, uint64(16))
			require.Less(t, turns, uint64(count/4), "the short path was not used")
			require.True(t, ran, "the timer has not run")
			_, _ = p.sends[0].Free(), p.recvs[1].Free()
		})
	}
}

// brokenEndpoint panics in the short paths.
type brokenEndpoint struct {
	btl.Endpoint
	btl.ShortSender
	isBroken *bool
}

func (e brokenEndpoint) SendShort(tag btl.Tag, first, second uint64, payload []byte) bool {
	if *e.isBroken {
		panic(errPoller)
	}
	return e.ShortSender.SendShort(tag, first, second, payload)
}

func (e brokenEndpoint) ReceiveShort(int, btl.Tag, uint64, uint64, []byte) int {
	if *e.isBroken {
		panic(errPoller)
	}
	return -1
}

func TestPanicInShortPathReleasesLock(t *testing.T) {
	isBroken := false
	p := newShortProgram(t, 0, overSM, func(ep btl.Endpoint) btl.Endpoint {
		return brokenEndpoint{ep, ep.(btl.ShortSender), &isBroken}
	})
	w, buf := p.worlds[0], make([]byte, 8)
	posted, err := Irecv(w, buf, 1, 0)
	require.NoError(t, err)
	isBroken = true
	for name, call := range map[string]func(){
		"Send":    func() { _ = Send(w, buf, 1, 0) },
		"Isend":   func() { _, _ = Isend(w, buf, 1, 0) },
		"Start":   func() { _ = p.sends[0].Start() },
		"Wait":    func() { _, _ = posted.Wait() },
		"WaitAll": func() { _ = request.WaitAll(posted) },
	} {
		require.PanicsWithError(t, errPoller.Error(), call, name)
		require.True(t, w.job.eng.TryLock(), name)
		w.job.eng.Unlock()
	}
	require.PanicsWithError(t, errPoller.Error(), func() { _, _ = Recv(p.worlds[1], buf, 0, 0) })
	require.True(t, p.worlds[1].job.eng.TryLock())
	p.worlds[1].job.eng.Unlock()
}

// countingRuns counts the runs that are not empty, and their fragments.
type countingRuns struct {
	btl.Endpoint
	btl.ShortSender
	btl.RunReceiver
	runs, fragments *int
}

func (e countingRuns) ReceiveRun(polls, most int, tag btl.Tag, first, second uint64, buf []byte, to btl.Run) int {
	n := e.RunReceiver.ReceiveRun(polls, most, tag, first, second, buf, to)
	if n > 0 {
		*e.runs++
		*e.fragments += n
	}
	return n
}

// WaitAll takes the messages of receives in order in one step, and allocates nothing.
func TestWaitAllTakesRunOfShortMessages(t *testing.T) {
	const window = 32
	runs, fragments := 0, 0
	p := newShortProgram(t, 0, overSM, func(ep btl.Endpoint) btl.Endpoint {
		return countingRuns{ep, ep.(btl.ShortSender), ep.(btl.RunReceiver), &runs, &fragments}
	})
	buf, reqs, sends := make([]byte, 8), make([]request.Request, window), make([]request.Request, window)
	exchange := func() {
		for i := range reqs {
			reqs[i] = must(Irecv(p.worlds[1], buf, 0, 0))
		}
		for i := range sends {
			sends[i] = must(Isend(p.worlds[0], buf, 1, 0))
		}
		check(request.WaitAll(sends...))
		check(request.WaitAll(reqs...))
		p.turns()
	}
	exchange()
	runs, fragments = 0, 0
	exchange()
	require.Equal(t, window, fragments)
	require.LessOrEqual(t, runs, 2) // the room of the ring is given back in between
	require.Zero(t, testing.AllocsPerRun(100, exchange))
	_, _ = p.sends[0].Free(), p.recvs[1].Free()
}
