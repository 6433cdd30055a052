package wireup

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trace_test.go has the server's answers on the wire, death_test.go the effects of a death.

func TestNewServerWithBadConfigFails(t *testing.T) {
	good := ServerConfig{Size: 2, JobID: "a-b_c.d:3", NodeOf: []int{0, 1}, AppNum: []int{0, 1}}
	_, err := NewServer(good)
	require.NoError(t, err)
	for name, change := range map[string]func(*ServerConfig){
		"no ranks":        func(c *ServerConfig) { c.Size = 0 },
		"too many ranks":  func(c *ServerConfig) { c.Size = maxRanks + 1 },
		"no job ID":       func(c *ServerConfig) { c.JobID = "" },
		"space in job ID": func(c *ServerConfig) { c.JobID = "a b" },
		"long job ID":     func(c *ServerConfig) { c.JobID = string(make([]byte, maxJobIDBytes+1)) },
		"nodes":           func(c *ServerConfig) { c.NodeOf = c.NodeOf[:1] },
		"programs":        func(c *ServerConfig) { c.AppNum = []int{} },
		"universe":        func(c *ServerConfig) { c.UniverseSize = -1 },
	} {
		cfg := good
		change(&cfg)
		_, err := NewServer(cfg)
		assert.ErrorIs(t, err, ErrConfig, name)
	}
}

func TestStateOfUnknownRank(t *testing.T) {
	s, err := NewServer(ServerConfig{Size: 1, JobID: "j"})
	require.NoError(t, err)
	assert.Equal(t, StateNeverInited, s.State(-1))
	assert.Equal(t, StateNeverInited, s.State(1))
	assert.Equal(t, "State(17)", State(17).String())
}

func TestServeOfBadRankClosesConnection(t *testing.T) {
	j := newJob(t, ServerConfig{Size: 1}, pipePair)
	for rank, want := range map[int]error{-1: ErrRank, 0: ErrTaken, 1: ErrRank} {
		ours, theirs := net.Pipe()
		assert.ErrorIs(t, j.server.Serve(rank, ours), want)
		_, err := theirs.Write([]byte("x"))
		assert.Error(t, err)
	}
}

func TestServeOfEndlessSpawnFails(t *testing.T) {
	s, err := NewServer(ServerConfig{Size: 1, JobID: "j"})
	require.NoError(t, err)
	input := "cmd=init pmi_version=1\nmcmd=spawn\n"
	n := 0
	conn := &cannedConn{Reader: readerFunc(func(p []byte) (int, error) {
		k := copy(p, input)
		if input = input[k:]; input == "" {
			input = "arg=x\n"
		}
		n += k
		return k, nil
	})}
	assert.ErrorIs(t, s.Serve(0, conn), ErrProtocol)
	assert.Less(t, n, 2*maxSpawnLines*len("arg=x\n"))
}

// The lines with the longest keys and values must fit the buffer of MPICH's client.
func TestLongestServerLinesFitMPICH(t *testing.T) {
	longest := "cmd=put kvsname=" + string(make([]byte, maxJobIDBytes)) + " key=" + string(make([]byte, keyLenMax)) + " value=" + string(make([]byte, valLenMax)) + "\n"
	assert.LessOrEqual(t, len(longest), maxRequestBytes)
	assert.LessOrEqual(t, len(formatLine("get_result", "rc", "0", "msg", "success", "value", string(make([]byte, valLenMax)))), maxRequestBytes)
}
