package jobsocket

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fakeJob has two ranks, of which one does not answer.
type fakeJob struct{ name string }

func (j fakeJob) Info() Info {
	return Info{Name: j.name, PID: os.Getpid(), Host: "here", Size: 2, Command: "solver -n 3", Started: time.Unix(int64(len(j.name)), 0).UTC()}
}

func (j fakeJob) Ask(ctx context.Context, want introspect.Want) []introspect.Member {
	return []introspect.Member{
		{Rank: 0, State: introspect.StateAnswered, Report: &introspect.Report{Host: string(want)}},
		{Rank: 1, State: introspect.StateSilent, Process: "stopped by a signal"},
	}
}

// runtimeDir makes a directory for sockets, which is short enough for their paths.
func runtimeDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "jobsocket")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	return filepath.Join(dir, "mpigo")
}

func listen(t *testing.T, name string) *Server {
	s, err := Listen(fakeJob{name})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestAskJobFromAnotherProcess(t *testing.T) {
	dir := runtimeDir(t)
	const pid = "4194305" // more than any process has: Dial looks at the user's other jobs, too
	s := listen(t, "socktest-"+pid+"-ab")
	assert.Equal(t, filepath.Join(dir, "socktest-"+pid+"-ab.sock"), s.Path())
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for _, name := range []string{"socktest-" + pid + "-ab", "socktest-41943", pid} {
		c, err := Dial(name)
		require.NoError(t, err, name)
		for range 2 {
			a, err := c.Report()
			require.NoError(t, err)
			job := fakeJob{"socktest-" + pid + "-ab"}
			assert.Equal(t, Answer{Version: Version, Job: job.Info(), Members: job.Ask(t.Context(), introspect.WantReport)}, a)
		}
		c.Close()
	}
	s.Close()
	_, err = os.Stat(s.Path())
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Dial(pid)
	assert.ErrorIs(t, err, ErrNoJob)
}

func TestJobsListsJobsAndRemovesLeftovers(t *testing.T) {
	dir := runtimeDir(t)
	listen(t, "socktest-170-ab") // the user's other jobs have other names
	listen(t, "socktest-18-cd")
	leave := func(name string, age time.Duration) string {
		path := filepath.Join(dir, name+suffix)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
		then := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, then, then))
		return path
	}
	old, young := leave("socktest-19-ef", time.Hour), leave("socktest-20-gh", -time.Hour)
	var names []string
	require.Eventually(t, func() bool {
		names = nil
		answered := true // a job that has not answered in time has no start
		for _, job := range Jobs() {
			if strings.HasPrefix(job.Name, "socktest-1") {
				names = append(names, job.Name)
				answered = answered && !job.Started.IsZero()
			}
		}
		return answered
	}, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"socktest-18-cd", "socktest-170-ab"}, names, "the oldest first")
	assert.NoFileExists(t, old)
	_, err := os.Lstat(young)
	assert.NoError(t, err, "it may be of a job that is just starting")
	_, err = Dial("socktest")
	assert.ErrorIs(t, err, ErrNoJob)
	assert.ErrorContains(t, err, "2 jobs")
}

func TestDirectoryOfOthersIsNotUsed(t *testing.T) {
	dir := runtimeDir(t)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	assert.ErrorContains(t, makeDirectory(dir), "chmod 700")
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Symlink("/tmp", dir))
	assert.ErrorContains(t, makeDirectory(dir), "not a directory")
	require.NoError(t, os.Remove(dir))
	if os.Getuid() == 0 {
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chown(dir, 12345, 12345))
		assert.ErrorContains(t, makeDirectory(dir), "belongs to user 12345")
	}
	for _, job := range []string{"", "a/b", "..", strings.Repeat("x", 200)} {
		_, err := pathOf("/tmp/d", job)
		assert.Error(t, err, job)
	}
}

func TestBadRequestsAreAnsweredOrEndTheConnection(t *testing.T) {
	runtimeDir(t)
	s := listen(t, "mpigo-1-a")
	conn, err := net.Dial("unix", s.Path())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("hello\n"))
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, "not a request")
	_, _ = conn.Write([]byte(strings.Repeat("x", maxRequestBytes+1)))
	_, err = in.ReadString('\n')
	assert.Error(t, err)
}

// tracingJob is a job that records a trace.
type tracingJob struct{ fakeJob }

func (tracingJob) Trace(context.Context) string { return "trace until now: /out/trace.json" }

// fakeJobWithDir is a job whose traces the command has to merge.
type fakeJobWithDir struct{ fakeJob }

func (j fakeJobWithDir) Info() Info {
	info := j.fakeJob.Info()
	info.Traces, info.TraceDir = true, "/out"
	return info
}

func TestTraceIsAskedOfJobsThatRecordOne(t *testing.T) {
	runtimeDir(t)
	listen(t, "mpigo-1-a")
	s, err := Listen(tracingJob{fakeJob{"mpigo-2-b"}})
	require.NoError(t, err)
	defer s.Close()
	byCommand, err := Listen(fakeJobWithDir{fakeJob{"mpigo-3-c"}})
	require.NoError(t, err)
	defer byCommand.Close()
	ask := func(name string) (Answer, error) {
		c, err := Dial(name)
		require.NoError(t, err)
		defer c.Close()
		return c.Trace()
	}
	a, err := ask("mpigo-2-b")
	require.NoError(t, err)
	assert.Equal(t, "trace until now: /out/trace.json", a.Trace)
	a, err = ask("mpigo-3-c")
	require.NoError(t, err)
	assert.Equal(t, "/out", a.Job.TraceDir)
	require.Len(t, a.Members, 2)
	assert.Equal(t, string(introspect.WantTrace), a.Members[0].Report.Host, "what the ranks were asked for")
	_, err = ask("mpigo-1-a")
	assert.ErrorContains(t, err, "the job makes no trace")
}

func TestOtherVersionIsAnError(t *testing.T) {
	runtimeDir(t)
	s := listen(t, "mpigo-1-a")
	conn, err := net.Dial("unix", s.Path())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(`{"v":9,"want":"report"}` + "\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, "the request has version 9, and this job understands 2")
	assert.NotContains(t, line, "members")

	job, end := net.Pipe()
	go func() {
		_, _ = end.Read(make([]byte, 1024))
		_, _ = end.Write([]byte(`{"v":9,"job":{"name":"a"}}` + "\n"))
		end.Close()
	}()
	c := &Client{job, bufio.NewReader(job)}
	defer c.Close()
	a, err := c.Report()
	assert.ErrorContains(t, err, "the job answers in version 9, and this command understands 2")
	assert.Equal(t, Answer{}, a)
}

func TestCommandThatAsksNothingIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		command, conn := net.Pipe()
		defer command.Close()
		s := &Server{job: fakeJob{"a"}, ctx: t.Context()}
		go func() {
			time.Sleep(requestTimeout / 2)
			_, _ = command.Write([]byte(`{"want":"job"}` + "\n"))
			_, _ = bufio.NewReader(command).ReadString('\n')
		}()
		started := time.Now()
		s.serve(conn)
		assert.Equal(t, requestTimeout+requestTimeout/2, time.Since(started), "each request has its time")
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"v":2,"job":{"name":"a"},"members":[{"rank":0,"report":{"rails":[{}]}}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		job, end := net.Pipe()
		go func() {
			_, _ = end.Read(make([]byte, 1024))
			_, _ = end.Write(append(line, '\n'))
			end.Close()
		}()
		c := &Client{job, bufio.NewReader(job)}
		defer c.Close()
		_, _ = c.Report()
	})
}
