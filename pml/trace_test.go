package pml

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// TestTraces runs the scripts in testdata, which show the protocols case by case. The lines above
// ---- are commands, and those below it are what the commands print, in order. A command prints
// the fragments that it posts or delivers, the transitions of requests, and the complete requests
// with their status. After a change, rewrite the scripts with -args -rewrite, and review the
// difference.
func TestTraces(t *testing.T) {
	datadriven.Walk(t, "testdata/traces", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			text := s.run(d)
			for line := range strings.Lines(d.Input) { // more commands
				cmd, args, err := datadriven.ParseLine(line)
				require.NoError(t, err)
				text += s.run(&datadriven.TestData{Pos: d.Pos, Cmd: cmd, CmdArgs: args})
			}
			return text
		})
	})
}

// script is a running script. Its wire is async, so the arrival of a fragment and the callback of
// its operation are two events.
type script struct {
	t     *testing.T
	w     *wire
	ctxs  map[string][]*Context // by name, then rank; nil at ranks that have not made it
	group map[string]*Group

	names    map[any]string // of requests
	order    []string
	requests map[string]tracked
	messages map[string]*Message

	// out becomes text at the end of a command, when new requests have their names.
	out []func() string
	// late are operations that are still to be called back.
	late []flight
}

var accessWords = map[string]btl.Access{"": 0, "local": btl.AccessLocal, "read": btl.AccessRemoteRead, "write": btl.AccessRemoteWrite}

type tracked struct {
	rank int
	r    anyRequest
}

type anyRequest interface {
	ended
	request.Operation
	Persistent() bool
	Abandon()
	Handle() request.Request
}

func (s *script) run(d *datadriven.TestData) string {
	s.out = nil
	switch d.Cmd {
	case "world":
		s.world(d)

	// send NAME rank=R to=R tag=N bytes=N [mode=sync|ready|buffered] [context=NAME] starts a send.
	// With persistent, only start starts it. With added, its buffer is added memory.
	case "send":
		c, p := s.ctx(d), s.pml(d)
		mode := map[string]Mode{"": Standard, "sync": Synchronous, "ready": Ready, "buffered": Buffered}[s.word(d, "mode")]
		buf := pattern(s.num(d, "bytes"), 1)
		if d.HasArg("added") {
			p.AddMemory(buf)
		}
		if d.HasArg("persistent") {
			s.add(d, p.SendInit(c, buf, s.num(d, "to"), s.num(d, "tag"), mode, "send"))
		} else {
			s.add(d, p.Isend(c, buf, s.num(d, "to"), s.num(d, "tag"), mode, "send"))
		}

	// recv NAME rank=R from=R|any tag=N|any room=N [context=NAME] [persistent] [added] starts a
	// receive.
	case "recv":
		c, p := s.ctx(d), s.pml(d)
		buf := make([]byte, s.num(d, "room"))
		if d.HasArg("added") {
			p.AddMemory(buf)
		}
		if d.HasArg("persistent") {
			s.add(d, p.RecvInit(c, buf, 1, s.num(d, "from"), s.num(d, "tag"), "recv"))
		} else {
			s.add(d, p.Irecv(c, buf, 1, s.num(d, "from"), s.num(d, "tag"), "recv"))
		}

	// probe NAME rank=R from=R|any tag=N|any [take] starts a probe that waits. With take it takes
	// the message out of matching; the message gets the probe's name.
	case "probe":
		s.add(d, s.pml(d).Probe(s.ctx(d), s.num(d, "from"), s.num(d, "tag"), d.HasArg("take"), "probe"))

	// iprobe rank=R from=R|any tag=N|any [take=NAME] reports whether a message is there, and with
	// take takes it out of matching.
	case "iprobe":
		var env Envelope
		var found bool
		if name := s.word(d, "take"); name != "" {
			s.messages[name], env, found = s.pml(d).Improbe(s.ctx(d), s.num(d, "from"), s.num(d, "tag"))
		} else {
			env, found = s.pml(d).Iprobe(s.ctx(d), s.num(d, "from"), s.num(d, "tag"))
		}
		if found {
			s.print("found: source %d tag %d, %d bytes", env.Source, env.Tag, env.Bytes)
		} else {
			s.print("not found")
		}

	// mrecv NAME rank=R of=NAME room=N receives a message that was taken out of matching.
	case "mrecv":
		s.add(d, s.pml(d).Imrecv(s.messages[s.word(d, "of")], make([]byte, s.num(d, "room")), 1, "mrecv"))

	// start NAME: starts a persistent request. cancel NAME, free NAME: cancels or frees a request.
	// detach NAME: a send releases its buffer.
	case "start":
		start(s.request(d).r)
	case "detach":
		r := s.request(d).r.(*SendRequest)
		buf := r.buf
		if r.Detach() == nil {
			clear(buf)
		} else {
			s.print("a device reads its buffer")
		}
	case "cancel":
		s.request(d).r.Cancel()
	case "free":
		s.request(d).r.Abandon()
		delete(s.requests, d.CmdArgs[0].Key)

	// settle: delivers everything in order, until nothing is in flight.
	case "settle":
		for len(s.w.flying) > 0 {
			s.w.step(0)
		}

	// back: calls back the operations that were delivered alone.
	case "back":
		late := s.late
		s.late = nil
		for _, f := range late {
			f.op.Done(f.op, nil)
		}

	// deliver [N|all] [nth=I] [alone] delivers N fragments, reads or writes, or one out of order,
	// and calls each back. With alone the callback waits for the command back.
	case "deliver":
		n := 1
		if d.HasArg("all") {
			n = len(s.w.flying)
		} else if len(d.CmdArgs) > 0 && d.CmdArgs[0].Key != "nth" && d.CmdArgs[0].Key != "alone" {
			n = s.first(d)
		}
		for range n {
			i := s.num(d, "nth")
			if d.HasArg("alone") {
				s.late = append(s.late, s.w.flying[i])
				s.w.flying[i].op = nil
			}
			s.w.step(i)
		}

	// refuse N: the rails have no room for the next N posts, nor for inline fragments until then.
	case "refuse":
		s.w.refuse = s.first(d)

	// misuse N: the next N reads and writes end with an error of ClassUsage.
	case "misuse":
		n := s.first(d)
		s.w.mishap = func(*flight) error {
			if n--; n < 0 {
				return nil
			}
			return usage("no")
		}

	// registering refused or broken rank=R [access=local|read|write] [rail=I]: from now on the
	// rank's rails, or one of them, fail to register memory, for one use or any: refused with
	// ErrMemory, broken with ErrResource. registering works: rails register memory again.
	case "registering":
		how, rank, access, rail := d.CmdArgs[0].Key, s.num(d, "rank"), accessWords[s.word(d, "access")], -1
		if d.HasArg("rail") {
			rail = s.num(d, "rail")
		}
		before := s.w.unregistrable
		if how == "works" {
			s.w.unregistrable = nil
			break
		}
		s.w.unregistrable = func(m *wireModule, of btl.Access) error {
			switch {
			case m.rank != rank || access != 0 && access != of || rail >= 0 && m.rail != rail:
				if before != nil {
					return before(m, of)
				}
				return nil
			case how == "refused":
				return btl.ErrMemory
			}
			return btl.ErrResource
		}

	// progress rank=R: the rank posts again the operations that were refused.
	case "progress":
		s.print("%d taken", s.pml(d).Progress())

	// context NAME rank=R [of=R,R…]: the rank has made the communicator NAME of the given ranks.
	// remove NAME rank=R: it has freed it.
	case "context":
		name, rank := d.CmdArgs[0].Key, s.num(d, "rank")
		if s.ctxs[name] == nil {
			s.ctxs[name] = make([]*Context, len(s.w.pmls))
			group := s.ctxs["world"][0].group
			if arg, ok := d.Arg("of"); ok {
				group = NewGroup(numbers[int](s, arg.Vals))
			}
			s.group[name] = group
		}
		member, ok := s.group[name].Rank(rank)
		require.True(s.t, ok)
		id := ContextID(2 * (len(s.ctxs) - 1))
		s.ctxs[name][rank] = s.pml(d).AddContext(id, s.group[name], member, testCaller{})
	case "remove":
		name, rank := d.CmdArgs[0].Key, s.num(d, "rank")
		s.pml(d).RemoveContext(s.ctxs[name][rank])

	// flush [N]: calls back the next N late operations, or all, with an error.
	case "flush":
		n := len(s.late)
		if len(d.CmdArgs) > 0 {
			n = s.first(d)
		}
		late := s.late[:n]
		s.late = s.late[n:]
		for _, f := range late {
			s.fragment("is lost", &f)
			f.op.Done(f.op, &btl.Error{Rail: "wire", Peer: f.to, Class: btl.ClassFlushed})
		}

	// cut rank=R peer=R rail=I [delivered]: this end of the rail fails. Its fragments in flight are
	// lost, or with delivered arrive, and are called back with an error.
	case "cut":
		rank, peer, rail := s.num(d, "rank"), s.num(d, "peer"), s.num(d, "rail")
		m := s.w.rails[rail][rank]
		m.down[peer] = btl.ErrFailed
		cut := s.w.take(func(f *flight) bool {
			return f.from == rank && f.to == peer && f.rail == rail
		})
		for _, f := range cut {
			if d.HasArg("delivered") && !f.isRemote() {
				s.fragment("arrives", &f)
				s.w.pmls[f.to].Arrived(s.w.rails[f.rail][f.to], f.from, f.tag, f.frag)
			} else {
				s.fragment("is lost", &f)
			}
		}
		s.pml(d).Failed(m, m.path(peer), &btl.Error{Rail: "wire", Peer: peer, Class: btl.ClassPath, Side: btl.SideBoth})
		for _, f := range cut {
			if f.op != nil {
				f.op.Done(f.op, &btl.Error{Rail: "wire", Peer: peer, Class: btl.ClassFlushed})
			}
		}

	// mend: failed rails can be opened again. time N [times=M]: N milliseconds pass, M times.
	case "mend":
		s.w.mended = true
	case "time":
		for range max(s.num(d, "times"), 1) {
			s.w.elapse(time.Duration(s.first(d)) * time.Millisecond)
		}

	// fail rank=R peer=R|all [later] [halfopen]: the rank's rail reports that the peer's process is
	// gone, or with all that the rail is broken. It calls back its operations and reports that it
	// is drained; with later, flush and drain do that. Fragments in flight to and from the peer are
	// lost; with halfopen, those from the peer are not. drain rank=R peer=R|all [rail=I]: the
	// rank's rail reports that it is drained.
	case "fail":
		rank, peer := s.num(d, "rank"), s.num(d, "peer")
		class := btl.ClassPeerGone
		if peer == btl.AllPeers {
			class = btl.ClassDevice
		}
		s.pml(d).Failed(s.w.modules[rank], btl.Path{Peer: peer}, &btl.Error{Rail: "wire", Peer: peer, Class: class})
		isPeer := func(other int) bool { return peer == btl.AllPeers || peer == other }
		for other := range s.w.pmls {
			if isPeer(other) {
				s.w.modules[rank].down[other] = btl.ErrFailed
			}
		}
		halfOpen := d.HasArg("halfopen")
		for _, f := range s.w.take(func(f *flight) bool {
			return f.from == rank && isPeer(f.to) || f.to == rank && isPeer(f.from) && !halfOpen
		}) {
			switch {
			case f.from != rank || f.op == nil:
			case d.HasArg("later"):
				s.late = append(s.late, f)
			default:
				f.op.Done(f.op, &btl.Error{Rail: "wire", Peer: peer, Class: btl.ClassFlushed})
			}
		}
		if !d.HasArg("later") {
			s.w.modules[rank].drain(peer)
		}
	case "drain":
		s.w.rails[s.num(d, "rail")][s.num(d, "rank")].drain(s.num(d, "peer"))

	// inject rank=R peer=R kind=N bytes=HEX: a fragment arrives.
	case "inject":
		var frag []byte
		_, err := fmt.Sscanf(s.word(d, "bytes"), "%x", &frag)
		require.NoError(s.t, err)
		rank := s.num(d, "rank")
		s.pml(d).Arrived(s.w.modules[rank], s.num(d, "peer"), btl.Tag(s.num(d, "kind")), frag)

	// show: prints what is active, in flight and kept, and the counts that are not zero.
	case "show":
		for _, f := range s.w.flying {
			s.fragment("in flight", &f)
		}
		for rank, p := range s.w.pmls {
			for _, a := range p.Pending() {
				s.print("%d: %v", rank, a)
			}
			st := p.Stats()
			var counts []string
			for _, c := range []struct {
				name string
				n    uint64
			}{
				{"busy", uint64(p.Busy())}, {"unexpected bytes", uint64(st.UnexpectedBytes)},
				{"early", st.Early}, {"duplicates", st.Duplicates}, {"malformed", st.Malformed},
			} {
				if c.n != 0 {
					counts = append(counts, fmt.Sprintf("%s %d", c.name, c.n))
				}
			}
			if counts != nil {
				s.print("%d: %s", rank, strings.Join(counts, ", "))
			}
		}
		if len(s.out) == 0 {
			s.print("nothing is left")
		}

	// memory: prints the registered memory.
	case "memory":
		for _, number := range slices.Sorted(maps.Keys(s.w.regions)) {
			s.region("has", s.w.regions[number])
		}
	default:
		d.Fatalf(s.t, "no such command: %s", d.Cmd)
	}
	s.completions()
	return s.text()
}

// world ranks=N [protocol=NAME] [window=N] [rdma=N] [longest=N] [weights=(N,N…)] makes N ranks on a
// new wire. A rail sends up to 64 bytes inline, up to 256 eagerly, and up to 512, or longest, at a
// time, headers included. With a protocol it has remote access, from rdma bytes on. There is a rail
// for each weight.
func (s *script) world(d *datadriven.TestData) {
	var ctxs []*Context
	s.w, ctxs = newWire(s.t, s.num(d, "ranks"), func(w *wire) {
		w.async = true
		w.attrs.InlineBytes, w.attrs.EagerBytes, w.attrs.MaxSendBytes = 64, 256, 512
		if n := s.num(d, "longest"); n > 0 {
			w.attrs.MaxSendBytes = n
		}
		w.log = s.fragment
		w.memory = s.region
		if name := s.word(d, "protocol"); name != "" {
			weights := []int64{1}
			if arg, ok := d.Arg("weights"); ok {
				weights = numbers[int64](s, arg.Vals)
			}
			withRails(weights...)(w)
			var err error
			w.config.Protocol, err = ParseProtocol(name)
			require.NoError(s.t, err)
		}
		w.config.GraceNanos = int64(s.num(d, "grace")) * int64(time.Millisecond)
		w.config.OnRail = func(e bml.RailEvent) {
			s.print("rail %s to %d: up %v, %d left", e.Rail, e.Peer, e.Up, e.Left)
		}
		w.config.RDMABytes = s.num(d, "rdma")
		w.config.WindowBytes = int64(s.num(d, "window"))
	})
	s.ctxs = map[string][]*Context{"world": ctxs}
	s.group = map[string]*Group{"world": ctxs[0].group}
	s.names, s.requests, s.messages = map[any]string{}, map[string]tracked{}, map[string]*Message{}
	s.order = nil
	for rank, p := range s.w.pmls {
		p.onMove = func(r request.Operation, from, to fmt.Stringer) {
			kind := "receive"
			if _, ok := r.(*SendRequest); ok {
				kind = "send"
			}
			s.out = append(s.out, func() string {
				return fmt.Sprintf("%d: %s %s: %v → %v", rank, kind, s.name(r), from, to)
			})
		}
	}
}

func (s *script) print(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.out = append(s.out, func() string { return text })
}

func (s *script) text() string {
	var b strings.Builder
	for _, line := range s.out {
		b.WriteString(line())
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *script) add(d *datadriven.TestData, r anyRequest) {
	name := d.CmdArgs[0].Key
	s.names[r] = name
	s.order = append(s.order, name)
	s.requests[name] = tracked{s.num(d, "rank"), r}
}

func (s *script) request(d *datadriven.TestData) tracked {
	name := d.CmdArgs[0].Key
	r, ok := s.requests[name]
	require.True(s.t, ok, "no request is named %s", name)
	return r
}

// completions prints the requests that are complete.
func (s *script) completions() {
	for _, name := range s.order {
		tr, ok := s.requests[name]
		if !ok || tr.r.State() != request.Complete {
			continue
		}
		if probe, ok := tr.r.(*ProbeRequest); ok && probe.Message() != nil {
			s.messages[name] = probe.Message()
		}
		if !tr.r.Persistent() {
			delete(s.requests, name)
		}
		var got []byte
		if recv, ok := tr.r.(*RecvRequest); ok {
			got = recv.buf
		}
		st, err := tr.r.Take()
		if !st.Cancelled && got != nil {
			got = got[:st.Bytes]
			require.Equal(s.t, pattern(len(got), 1), got, "the bytes of %s", name)
		}
		line := fmt.Sprintf("%d: %s is complete", tr.rank, name)
		switch _, send := tr.r.(*SendRequest); {
		case st.Cancelled:
			line += ": cancelled"
		case !send:
			line += fmt.Sprintf(": source %d tag %d, %d bytes", st.Source, st.Tag, st.Bytes)
		}
		if err != nil {
			line += ": " + err.Error()
		}
		s.print("%s", line)
	}
}

func (s *script) pml(d *datadriven.TestData) *PML { return s.w.pmls[s.num(d, "rank")] }

func (s *script) ctx(d *datadriven.TestData) *Context {
	name := s.word(d, "context")
	if name == "" {
		name = "world"
	}
	c := s.ctxs[name][s.num(d, "rank")]
	require.NotNil(s.t, c, "context %s at this rank", name)
	return c
}

// word returns a named argument, "" if there is none.
func (s *script) word(d *datadriven.TestData, key string) string {
	if arg, ok := d.Arg(key); ok {
		return arg.SingleVal(s.t)
	}
	return ""
}

// first returns the first argument, which is a number.
func (s *script) first(d *datadriven.TestData) int {
	return numbers[int](s, []string{d.CmdArgs[0].Key})[0]
}

func numbers[T int | int64](s *script, words []string) (all []T) {
	for _, word := range words {
		n, err := strconv.Atoi(word)
		require.NoError(s.t, err)
		all = append(all, T(n))
	}
	return all
}

// num returns a named number, 0 if there is none, −1 for "any".
func (s *script) num(d *datadriven.TestData, key string) int {
	switch word := s.word(d, key); word {
	case "":
		return 0
	case "any", "all":
		return -1
	default:
		return numbers[int](s, []string{word})[0]
	}
}
