package wireup

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cannedConn is a connection that reads from Reader and records what is written.
type cannedConn struct {
	io.Reader
	written bytes.Buffer
}

func (c *cannedConn) Write(b []byte) (int, error)        { return c.written.Write(b) }
func (c *cannedConn) Close() error                       { return nil }
func (c *cannedConn) LocalAddr() net.Addr                { return nil }
func (c *cannedConn) RemoteAddr() net.Addr               { return nil }
func (c *cannedConn) SetDeadline(time.Time) error        { return nil }
func (c *cannedConn) SetReadDeadline(time.Time) error    { return nil }
func (c *cannedConn) SetWriteDeadline(t time.Time) error { return nil }

// For any input the server answers in whole lines that a client can parse, keeps its bounds, and
// ends when the connection does.
func FuzzServerLine(f *testing.F) {
	f.Add("cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=put kvsname=j key=a value=b\ncmd=barrier_in\ncmd=get kvsname=j key=a\ncmd=finalize\n")
	f.Add("cmd=init pmi_version=1 pmi_subversion=1\ncmd=abort exitcode=3 message=%41+b\n")
	f.Add("cmd=init pmi_version=1\nmcmd=spawn\ntotspawns=1\nspawnssofar=1\nendcmd\ncmd=lookup_name service=x\n")
	f.Add("cmd=init pmi_version=1\ncmd=put kvsname=j key=ab value=b\ncmd=put kvsname=j key=aa value=\ncmd=barrier_in\ncmd=mpigo_get_all kvsname=j prefix=a\ncmd=mpigo_get_all kvsname=j\n")
	f.Add("cmd=init\x00pmi_version=1\n")
	f.Add("cmd=barrier_in\ncmd=")
	f.Fuzz(func(t *testing.T, input string) {
		s, err := NewServer(ServerConfig{Size: 1, JobID: "j", OnAbort: func(Abort) {}})
		require.NoError(t, err)
		s.kvs.maxKeys, s.kvs.maxBytes = 8, 256
		conn := &cannedConn{Reader: strings.NewReader(input)}
		_ = s.Serve(0, conn)
		require.LessOrEqual(t, s.kvs.keys, 8)
		require.LessOrEqual(t, s.kvs.bytes, 256)
		out := conn.written.String()
		for line := range strings.Lines(out) {
			require.True(t, strings.HasSuffix(line, "\n"))
			require.LessOrEqual(t, len(line), maxRequestBytes, "MPICH's client accepts no longer line")
			_, err := parseLine(strings.TrimSuffix(line, "\n"))
			require.NoError(t, err, "%q", line)
		}
	})
}

// For any answers of a manager, a client's calls end, and their results are within bounds.
func FuzzClientReply(f *testing.F) {
	hello := handshake("")
	f.Add("")
	f.Add(hello + "cmd=put_result rc=0\ncmd=put_result rc=0\ncmd=barrier_out\ncmd=get_result rc=0 value=3.AAAA\ncmd=get_result rc=0 value=(vector,(0,1,4))\ncmd=finalize_ack\n")
	f.Add(hello + "cmd=put_result rc=0\ncmd=put_result rc=-1 msg=no\ncmd=barrier_out rc=1\ncmd=get_result rc=0 value=9.AAAA\ncmd=get_result rc=0 value=AAAA\ncmd=get_result rc=0 value=AAAA\n")
	f.Add(hello + "cmd=put_result\ncmd=get_result value=\x00\n")
	f.Add(hello + "cmd=put_result rc=0\ncmd=put_result rc=0\ncmd=barrier_failed rank=2 state=5\n")
	f.Add(hello + "cmd=put_result rc=0\ncmd=put_result rc=0\ncmd=barrier_failed rank=3 state=6\n")
	ours := handshake(" mpigo_get_all=1") +
		"cmd=put_result rc=0\ncmd=put_result rc=0\ncmd=barrier_out\ncmd=get_result rc=1\ncmd=get_result rc=1\ncmd=get_result rc=1\ncmd=get_result rc=1\n"
	f.Add(ours + "cmd=mpigo_get_all_result rc=0 count=2\ncmd=mpigo_word key=mpigo-card-1 value=5.AgAAAAA\ncmd=mpigo_word key=mpigo-card-2 value=5.AgAAAAA\n")
	f.Add(ours + "cmd=mpigo_get_all_result rc=0 count=2\ncmd=mpigo_word key=mpigo-card-1 value=5.Ag\ncmd=mpigo_word key=mpigo-card-1 value=AAA\n")
	f.Add(ours + "cmd=mpigo_get_all_result rc=0 count=99999999\ncmd=mpigo_word\n")
	f.Add(handshake(" mpigo_publish=1") + "cmd=put_result rc=0\ncmd=put_result rc=0\ncmd=barrier_out\ncmd=get_result rc=1\ncmd=get_result rc=1\ncmd=get_result rc=1\n" +
		"cmd=get_result rc=1\ncmd=mpigo_published_result rc=0 count=1\ncmd=mpigo_word key=mpigo-module-2-1 value=AAAA\n")
	f.Fuzz(func(t *testing.T, answers string) {
		c, err := NewClient(&cannedConn{Reader: strings.NewReader(answers)}, 0, 3)
		if err != nil {
			return
		}
		require.NotEmpty(t, c.kvsName)
		_ = c.Put("k", []byte("v"))
		_ = c.Barrier()
		if v, err := c.Get("k"); err == nil {
			require.LessOrEqual(t, len(v), MaxValueBytes)
		}
		if nodeOf, err := c.NodeOf(); err == nil && nodeOf != nil {
			require.Len(t, nodeOf, 3)
		}
		if secret, err := c.Secret(); err == nil {
			require.Len(t, secret, SecretBytes)
		}
		if cards, err := c.GetCards(); err == nil {
			require.Len(t, cards, 3)
		}
		if modules, err := c.PublishedModules(); err == nil {
			for _, r := range modules {
				require.True(t, r.Rank >= 0 && r.Rank < 3 && r.Number >= 0 && r.Number < maxModules && len(r.Address) <= maxAddressBytes)
			}
		}
		_ = c.Abort(Abort{Code: 1, Message: answers})
		_ = c.Finalize()
	})
}
