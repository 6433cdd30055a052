package wireup

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// The test runs the scripts testdata/server/*, which show the server's side of the wire line by
// line. A process is named by its rank, and connects when it is first named. The commands:
//
//	server size=N [nodes=(…)] [programs=(…)] [universe=N] [keys=N] [bytes=N]
//	                            makes a job with the name "job"
//	send rank=N [receive=N]     writes the input at once, and prints N lines; without receive: line
//	                            by line, with one answer each
//	receive rank=N              prints a line
//	served rank=N [hang-up] [cut]
//	                            writes the input, with cut without its newline; closes the
//	                            process's end if told to; prints the result of Serve and the rank's
//	                            state, and checks that the connection is closed
func TestServerTraces(t *testing.T) {
	datadriven.Walk(t, "testdata/server", func(t *testing.T, path string) {
		tr := &trace{}
		defer tr.end()
		datadriven.RunTest(t, path, tr.run)
	})
}

type trace struct {
	server *Server
	aborts strings.Builder // calls of OnAbort, which end before their Serve returns
	procs  map[int]*traceProc
}

type traceProc struct {
	conn   net.Conn
	in     *bufio.Reader
	served chan error
}

func (tr *trace) end() {
	for _, p := range tr.procs {
		p.conn.Close()
		<-p.served
	}
	tr.procs = map[int]*traceProc{}
}

// proc returns a process, which it connects if need be.
func (tr *trace) proc(t *testing.T, rank int) *traceProc {
	p := tr.procs[rank]
	if p == nil {
		ours, theirs := socketPair(t)
		require.NoError(t, theirs.SetDeadline(time.Now().Add(20*time.Second)))
		p = &traceProc{conn: theirs, in: bufio.NewReader(theirs), served: make(chan error, 1)}
		tr.procs[rank] = p
		go func() { p.served <- tr.server.Serve(rank, ours) }()
	}
	return p
}

func (tr *trace) run(t *testing.T, d *datadriven.TestData) string {
	var rank, lines int
	d.MaybeScanArgs(t, "rank", &rank)
	if d.Cmd == "server" {
		tr.end()
		cfg := ServerConfig{JobID: "job", OnAbort: func(a Abort) {
			fmt.Fprintf(&tr.aborts, "abort by rank %d: %d %q\n", a.Rank, a.Code, a.Message)
		}}
		d.ScanArgs(t, "size", &cfg.Size)
		d.MaybeScanArgs(t, "nodes", &cfg.NodeOf)
		d.MaybeScanArgs(t, "programs", &cfg.AppNum)
		d.MaybeScanArgs(t, "universe", &cfg.UniverseSize)
		var err error
		tr.server, err = NewServer(cfg)
		require.NoError(t, err)
		d.MaybeScanArgs(t, "keys", &tr.server.kvs.maxKeys)
		d.MaybeScanArgs(t, "bytes", &tr.server.kvs.maxBytes)
		return ""
	}
	p := tr.proc(t, rank)
	switch {
	case d.Cmd == "send" && d.MaybeScanArgs(t, "receive", &lines):
		p.write(t, d.Input)
		return p.receive(t, lines)
	case d.Cmd == "send": // clients wait for each answer
		answers := ""
		for line := range strings.SplitSeq(d.Input, "\n") {
			p.write(t, line)
			answers += p.receive(t, 1)
		}
		return answers
	case d.Cmd == "receive":
		return p.receive(t, 1)
	case d.Cmd == "served":
		if d.HasArg("cut") {
			_, err := p.conn.Write([]byte(d.Input))
			require.NoError(t, err)
		} else if d.Input != "" {
			p.write(t, d.Input)
		}
		if d.HasArg("hang-up") {
			require.NoError(t, p.conn.Close())
		}
		err := <-p.served
		p.served <- nil
		out := tr.aborts.String()
		tr.aborts.Reset()
		if _, more := p.in.ReadByte(); more == nil {
			out += "there is more to read\n"
		}
		return out + fmt.Sprintf("%v; %v\n", err, tr.server.State(rank))
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func (p *traceProc) write(t *testing.T, text string) {
	_, err := p.conn.Write([]byte(text + "\n"))
	require.NoError(t, err)
}

func (p *traceProc) receive(t *testing.T, lines int) string {
	out := ""
	for range lines {
		line, err := p.in.ReadString('\n')
		require.NoError(t, err)
		out += line
	}
	return out
}
