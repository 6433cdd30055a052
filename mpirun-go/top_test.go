package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
)

// openTerminal makes a terminal of 80 columns and 24 lines: the user's end, and the program's.
func openTerminal(t *testing.T) (user, program *os.File) {
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { user.Close() })
	fd := int(user.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 80, Row: 24}))
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { program.Close() })
	return user, program
}

// oneRank is a job of one rank that answers at once.
type oneRank struct{}

func (oneRank) Info() jobsocket.Info {
	return jobsocket.Info{Name: "job-of-top", Size: 1, Command: "./solver", Started: time.Now()}
}

func (oneRank) Ask(context.Context, introspect.Want) []introspect.Member {
	return []introspect.Member{{State: introspect.StateAnswered, Host: "n1", Metrics: &introspect.Metrics{
		Doing: "main.go:46 Recv", Counters: map[string]uint64{"Received": 1},
	}}}
}

// screen collects what a program writes to a terminal.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) has(text string) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.text.String(), text)
	}
}

// jobOfTop serves a job of one rank, and connects to it.
func jobOfTop(t *testing.T) (server *jobsocket.Server, client *jobsocket.Client) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	server, err := jobsocket.Listen(oneRank{})
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	client, err = jobsocket.Dial("job-of-top")
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return server, client
}

// TestTopOnTerminal shows a job on a terminal. Both q and the end of the job end it, and leave the
// terminal as it was.
func TestTopOnTerminal(t *testing.T) {
	for name, end := range map[string]func(user *os.File, server *jobsocket.Server) (want error){
		"q":         func(user *os.File, _ *jobsocket.Server) error { _, _ = user.WriteString("xq"); return nil },
		"Ctrl-C":    func(user *os.File, _ *jobsocket.Server) error { _, _ = user.WriteString("\x03"); return nil },
		"job's end": func(_ *os.File, server *jobsocket.Server) error { server.Close(); return errJobEnded },
	} {
		t.Run(name, func(t *testing.T) {
			server, client := jobOfTop(t)
			user, program := openTerminal(t)
			before, err := term.GetState(int(program.Fd()))
			require.NoError(t, err)
			var seen screen
			go func() { _, _ = io.Copy(&seen, user) }()
			shown := make(chan error, 1)
			go func() { shown <- (&watcher{client: client}).show(program, program) }()

			require.Eventually(t, seen.has("main.go:46 Recv"), 10*time.Second, 5*time.Millisecond)
			require.Condition(t, seen.has(enterScreen))
			want := end(user, server)
			require.ErrorIs(t, <-shown, want)
			require.Eventually(t, seen.has(leaveScreen), 10*time.Second, 5*time.Millisecond)
			after, err := term.GetState(int(program.Fd()))
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestTopDrawsOnlyOnTerminalWithControlSequences(t *testing.T) {
	_, program := openTerminal(t)
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer file.Close()
	t.Setenv("TERM", "xterm")
	require.True(t, canDraw(program, program))
	require.False(t, canDraw(file, program))
	require.False(t, canDraw(program, file))
	t.Setenv("TERM", "dumb")
	require.False(t, canDraw(program, program))
}
