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
// line. Their commands:
//
//	server size=N [nodes=(…)] [keys=N] [bytes=N]   makes a job with the name "job"
//	connect proc=NAME rank=N                       serves a new connection; rank=-1: AnyRank
//	send proc=NAME [receive=N]             writes the input at once, and prints N lines;
//	                                       without receive: line by line, with one answer each
//	receive proc=NAME [lines=N]            prints N lines
//	await rank=N state=(in barrier)        waits until the server has the rank in that state
//	hang-up proc=NAME                      closes the process's end
//	served proc=NAME                       prints the result of Serve and the rank's state, and
//	                                       checks that the connection is closed
func TestServerTraces(t *testing.T) {
	datadriven.Walk(t, "testdata/server", func(t *testing.T, path string) {
		tr := &trace{procs: map[string]*traceProc{}}
		defer tr.end()
		datadriven.RunTest(t, path, tr.run)
	})
}

type trace struct {
	server *Server
	aborts strings.Builder // calls of OnAbort, which end before their Serve returns
	procs  map[string]*traceProc
}

type traceProc struct {
	rank   int
	conn   net.Conn
	in     *bufio.Reader
	served chan error
}

func (tr *trace) end() {
	for _, p := range tr.procs {
		p.conn.Close()
		<-p.served
	}
}

func (tr *trace) run(t *testing.T, d *datadriven.TestData) string {
	var proc *traceProc
	if d.HasArg("proc") {
		var name string
		d.ScanArgs(t, "proc", &name)
		if proc = tr.procs[name]; proc == nil {
			proc = &traceProc{served: make(chan error, 1)}
			tr.procs[name] = proc
		}
	}
	switch d.Cmd {
	case "server":
		tr.end()
		tr.procs = map[string]*traceProc{}
		cfg := ServerConfig{JobID: "job", OnAbort: func(rank, code int, message string) {
			fmt.Fprintf(&tr.aborts, "abort by rank %d: %d %q\n", rank, code, message)
		}}
		d.ScanArgs(t, "size", &cfg.Size)
		d.MaybeScanArgs(t, "nodes", &cfg.NodeOf)
		d.MaybeScanArgs(t, "keys", &cfg.MaxKeys)
		d.MaybeScanArgs(t, "bytes", &cfg.MaxBytes)
		var err error
		tr.server, err = NewServer(cfg)
		require.NoError(t, err)
		return ""
	case "connect":
		d.ScanArgs(t, "rank", &proc.rank)
		ours, theirs := socketPair(t)
		proc.conn, proc.in = theirs, bufio.NewReader(theirs)
		require.NoError(t, theirs.SetDeadline(time.Now().Add(20*time.Second)))
		go func() { proc.served <- tr.server.Serve(proc.rank, ours) }()
		return ""
	case "send":
		if d.HasArg("receive") {
			var lines int
			d.ScanArgs(t, "receive", &lines)
			_, err := proc.conn.Write([]byte(d.Input + "\n"))
			require.NoError(t, err)
			return proc.receive(t, lines)
		}
		// Clients wait for each answer.
		answers := ""
		for line := range strings.SplitSeq(d.Input, "\n") {
			_, err := proc.conn.Write([]byte(line + "\n"))
			require.NoError(t, err)
			answers += proc.receive(t, 1)
		}
		return answers
	case "receive":
		lines := 1
		d.MaybeScanArgs(t, "lines", &lines)
		return proc.receive(t, lines)
	case "await":
		var rank int
		var state string
		d.ScanArgs(t, "rank", &rank)
		d.ScanArgs(t, "state", &state)
		require.Eventually(t, func() bool { return tr.server.State(rank).String() == state }, 20*time.Second, 100*time.Microsecond)
		return ""
	case "hang-up":
		require.NoError(t, proc.conn.Close())
		return ""
	case "served":
		err := <-proc.served
		proc.served <- nil
		out := tr.aborts.String()
		tr.aborts.Reset()
		if _, more := proc.in.ReadByte(); more == nil {
			out += "there is more to read\n"
		}
		return out + fmt.Sprintf("%v; %v\n", err, tr.server.State(proc.rank))
	default:
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	}
}

func (p *traceProc) receive(t *testing.T, lines int) string {
	var b strings.Builder
	for range lines {
		line, err := p.in.ReadString('\n')
		require.NoError(t, err)
		b.WriteString(line)
	}
	return b.String()
}
