package wireup

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// peer is the server's side of one process's connection. The goroutine in Serve owns it.
type peer struct {
	s    *Server
	conn net.Conn
	rank int

	joined    bool // init was accepted
	inBarrier bool
	spawn     *spawnBlock // inside a spawn request

	// How the connection ended, for Serve. The error alone is not enough, because Fail may have
	// been called with the error of another rank.
	finalized bool
	aborted   error // the abort as an error; later lines are ignored
	lost      bool  // the connection ended
}

// errDone ends run without an error.
var errDone = errors.New("done")

// run answers the process until the connection is to end. It reads on while the process waits in a
// barrier, to notice an abort or a death.
func (p *peer) run() error {
	lines := make(chan received)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.receive(lines, stop)
	}()
	defer func() {
		close(stop)
		p.conn.Close()
		<-ended
	}()
	for {
		var barrier chan error
		if p.inBarrier {
			barrier = p.s.ranks[p.rank].out
		}
		var err error
		select {
		case <-p.s.failed:
			err = p.s.failure
		case result := <-barrier:
			p.inBarrier = false
			if err = result; err == nil {
				err = p.answer("barrier_out")
			} else {
				p.barrierFailed(err)
			}
		case r := <-lines:
			if err = r.err; err == nil {
				err = p.handle(r.line)
			} else {
				p.lost = errors.Is(err, ErrLost)
			}
		}
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

type received struct {
	line string
	err  error
}

func (p *peer) receive(lines chan<- received, stop <-chan struct{}) {
	in := newLineReader(p.conn)
	for {
		line, err := in.readLine()
		r := received{line: line}
		if err != nil {
			r.err = connError(err)
		}
		select {
		case lines <- r:
		case <-stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// handle acts on one line of the process.
func (p *peer) handle(line string) error {
	if p.aborted != nil {
		return nil
	}
	if p.spawn != nil {
		return p.spawnLine(line)
	}
	m, err := parseLine(line)
	if err != nil {
		return protocolError(line, err)
	}
	switch {
	case !p.joined && m.cmd != "init" && m.cmd != "abort":
		return protocolError(line, errors.New("init must be first"))
	case p.inBarrier && m.cmd != "abort":
		return protocolError(line, errors.New("in barrier"))
	}
	switch m.cmd {
	case "init":
		return p.init(m)
	case "get_maxes":
		return p.answer("maxes", "kvsname_max", strconv.Itoa(kvsNameMax),
			"keylen_max", strconv.Itoa(keyLenMax), "vallen_max", strconv.Itoa(valLenMax), getAll, "1", publish, "1")
	case "get_appnum":
		app := 0
		if p.s.cfg.AppNum != nil {
			app = p.s.cfg.AppNum[p.rank]
		}
		return p.answer("appnum", "appnum", strconv.Itoa(app))
	case "get_universe_size":
		return p.answer("universe_size", "size", strconv.Itoa(p.s.cfg.UniverseSize))
	case "get_my_kvsname":
		return p.answer("my_kvsname", "kvsname", p.s.cfg.JobID)
	case "put":
		return p.put(m)
	case "get":
		return p.get(m)
	case getAll:
		return p.getAll(m)
	case publish:
		return p.publish(m)
	case published:
		return p.published(m)
	case "barrier_in":
		p.inBarrier = true
		p.s.enterBarrier(p.rank)
		return nil
	case "finalize":
		p.finalized = true
		p.s.leave(p.rank, StateFinalized) // before the answer, after which the process may end
		_ = p.answer("finalize_ack")      // the process need not wait for it
		return errDone
	case "abort":
		return p.abort(m)
	case "spawn":
		p.spawn = &spawnBlock{}
		return nil
	default:
		return p.answer(resultOf(m.cmd), "rc", "-1", "msg", "not_supported")
	}
}

// resultOf returns the answer that clients expect to a command that is not supported. Commands that
// are not in the list are not PMI-1's; an answer lets their senders go on.
func resultOf(cmd string) string {
	switch cmd {
	case "publish_name":
		return "publish_result"
	case "unpublish_name":
		return "unpublish_result"
	case "lookup_name":
		return "lookup_result"
	case "create_kvs":
		return "newkvs"
	case "destroy_kvs":
		return "kvs_destroyed"
	case "getbyidx":
		return "getbyidx_results"
	default:
		return cmd + "_result"
	}
}

func protocolError(line string, why error) error {
	return fmt.Errorf("sent %q: %w: %w", clip(line), why, ErrProtocol)
}

// init accepts PMI 1.0 and 1.1. The refusal of another version names 1.1.
func (p *peer) init(m message) error {
	rc := "0"
	if _, err := m.number("pmi_version", 1, 1); err != nil {
		rc = "-1"
	} else if !p.joined {
		p.joined = true
		p.s.inited(p.rank)
	}
	return p.answer("response_to_init", "pmi_version", "1", "pmi_subversion", "1", "rc", rc)
}

// barrierFailed tells the process why its barrier fails. Client turns the answer into the same
// error. MPICH's client treats an unknown answer as a failure.
func (p *peer) barrierFailed(why error) {
	var failure *BarrierError
	if errors.As(why, &failure) {
		// An error changes nothing: the connection ends next.
		_ = writePatiently(p.conn, formatLine(barrierFailed, "rank", strconv.Itoa(failure.Rank), "state", strconv.Itoa(int(failure.State))))
	}
}

func (p *peer) put(m message) error {
	key, value, why := p.keyOf(m)
	if why == "" {
		p.s.mu.Lock()
		// Clones, because a substring would keep the whole line alive.
		if !p.s.kvs.put(strings.Clone(key), strings.Clone(value)) {
			why = "no_room"
		}
		p.s.mu.Unlock()
	}
	if why != "" {
		return p.answer("put_result", "rc", "-1", "msg", why)
	}
	return p.answer("put_result", "rc", "0", "msg", "success")
}

func (p *peer) get(m message) error {
	key, _, why := p.keyOf(m)
	var value string
	var found bool
	switch {
	case why != "":
	case key == mappingKey:
		value, found = p.s.mapping, p.s.mapping != ""
	default:
		p.s.mu.Lock()
		value, found = p.s.kvs.get(key)
		p.s.mu.Unlock()
	}
	switch {
	case found:
		return p.answer("get_result", "rc", "0", "msg", "success", "value", value)
	case why == "":
		why = "key_not_found"
	}
	// With a value, as Hydra does.
	return p.answer("get_result", "rc", "-1", "msg", why, "value", "unknown")
}

// getAll answers with all visible values whose keys have a prefix.
func (p *peer) getAll(m message) error {
	prefix, _ := m.get("prefix")
	if name, _ := m.get("kvsname"); name != p.s.cfg.JobID {
		return p.answer(getAllResult, "rc", "-1", "msg", "no_such_kvs")
	}
	if len(prefix) > keyLenMax {
		return p.answer(getAllResult, "rc", "-1", "msg", "bad_key")
	}
	p.s.mu.Lock()
	text := p.s.kvs.list(prefix)
	p.s.mu.Unlock()
	return p.write(text)
}

// keyOf returns the arguments of a put or get; why is the reason for a refusal, or "".
func (p *peer) keyOf(m message) (key, value, why string) {
	key, _ = m.get("key")
	value, _ = m.get("value")
	name, _ := m.get("kvsname")
	switch {
	case name != p.s.cfg.JobID:
		why = "no_such_kvs"
	case key == "" || len(key) > keyLenMax:
		why = "bad_key"
	case len(value) > valLenMax:
		why = "value_too_long"
	}
	return key, value, why
}

// abort calls OnAbort. If there is one, the connection stays open until the launcher has killed the
// process: MPICH's client waits here for an answer that never comes, and spins if the connection
// ends instead.
func (p *peer) abort(m message) error {
	code, err := m.number("exitcode", -1<<31, 1<<31-1)
	if err != nil {
		code = 1
	}
	text, _ := m.get("message")
	if plain, err := url.QueryUnescape(text); err == nil {
		text = plain
	}
	p.aborted = fmt.Errorf("%w: exit code %d: %q", ErrAborted, code, clip(text))
	p.inBarrier = false
	p.s.aborted(p.rank)
	if p.s.cfg.OnAbort == nil {
		return p.aborted
	}
	p.s.cfg.OnAbort(Abort{Rank: p.rank, Code: code, Message: text, Why: m.why()})
	return nil
}

// spawnBlock is a request to start more processes: for each program a block of lines from
// mcmd=spawn to endcmd, with one answer after the last block.
type spawnBlock struct {
	lines int
	total string // totspawns=
	sofar string // spawnssofar=
}

// maxSpawnLines bounds a block of a spawn request.
const maxSpawnLines = 1 << 14

// spawnLine skips a spawn request and refuses it at its end. Without an answer MPI_Comm_spawn would
// wait for ever.
func (p *peer) spawnLine(line string) error {
	b := p.spawn
	if b.lines++; b.lines > maxSpawnLines {
		return protocolError(line, errors.New("spawn request too long"))
	}
	key, value, _ := strings.Cut(line, "=")
	switch key {
	case "totspawns":
		b.total = value
	case "spawnssofar":
		b.sofar = value
	case "endcmd":
		p.spawn = nil
		if b.sofar == b.total {
			return p.answer("spawn_result", "rc", "-1", "msg", "not_supported")
		}
	}
	return nil
}

func (p *peer) answer(cmd string, pairs ...string) error { return p.write(formatLine(cmd, pairs...)) }

func (p *peer) write(text string) error {
	if err := writePatiently(p.conn, text); err != nil {
		err = connError(err)
		p.lost = errors.Is(err, ErrLost)
		return err
	}
	return nil
}
