package progress

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const hour = int64(time.Hour)

// eachBell runs a test on every kind of Bell.
func eachBell(t *testing.T, test func(t *testing.T, newBell func() Bell)) {
	t.Run("chan", func(t *testing.T) {
		test(t, func() Bell { return NewChanBell() })
	})
	t.Run("pipe", func(t *testing.T) {
		test(t, func() Bell {
			b, err := NewPipeBell()
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, b.Close()) })
			return b
		})
	})
}

// sleeps reports whether the bell lets its sleeper sleep, that is, has not been rung.
func sleeps(b Bell) bool {
	const nanos = int64(5 * time.Millisecond)
	start := time.Now()
	b.Sleep(nanos)
	return int64(time.Since(start)) >= nanos
}

func TestBell(t *testing.T) {
	eachBell(t, func(t *testing.T, newBell func() Bell) {
		for _, test := range []struct {
			name string
			do   func(b Bell)
		}{
			{"not rung: the time ends the sleep", func(b Bell) { assert.True(t, sleeps(b)) }},
			{"no time: returns", func(b Bell) { b.Sleep(0); b.Sleep(-1); assert.True(t, sleeps(b)) }},
			{"rung before the sleep", func(b Bell) { b.Ring(); b.Sleep(hour); assert.True(t, sleeps(b)) }},
			{"rung and slept, again and again", func(b Bell) {
				for range 100 {
					b.Ring()
					b.Sleep(hour)
				}
				assert.True(t, sleeps(b))
			}},
			{"rung often: one sleep, and never blocks", func(b Bell) {
				for range 10_000 {
					b.Ring()
				}
				b.Sleep(hour)
				assert.True(t, sleeps(b))
			}},
			{"a ring outlives a sleep that timed out", func(b Bell) { sleeps(b); b.Ring(); b.Sleep(hour) }},
			{"rung during the sleep", func(b Bell) {
				go b.Ring()
				b.Sleep(hour)
			}},
			{"closed during the sleep", func(b Bell) {
				closed := spawn(b.Close)
				b.Sleep(hour)
				assert.NoError(t, <-closed)
			}},
			{"closed before: nothing blocks", func(b Bell) {
				require.NoError(t, b.Close())
				for range 3 {
					b.Sleep(hour)
				}
				for range 3 {
					b.Ring()
				}
				assert.NoError(t, b.Close(), "a second time")
			}},
			{"rung by many, and closed meanwhile", func(b Bell) {
				var ringers sync.WaitGroup
				for range 4 {
					ringers.Go(func() {
						for range 1000 {
							b.Ring()
						}
					})
				}
				for range 10 {
					b.Sleep(hour / 3600 / 1000)
				}
				assert.NoError(t, b.Close())
				ringers.Wait()
			}},
		} {
			t.Run(test.name, func(t *testing.T) { test.do(newBell()) })
		}
	})
}

// Two sleepers wake each other: a ring that was lost would end it.
func TestBellPingPong(t *testing.T) {
	const rounds = 2000
	eachBell(t, func(t *testing.T, newBell func() Bell) {
		ping, pong := newBell(), newBell()
		done := spawn(func() error {
			for range rounds {
				ping.Sleep(hour)
				pong.Ring()
			}
			return nil
		})
		for range rounds {
			ping.Ring()
			pong.Sleep(hour)
		}
		require.NoError(t, within(t, done, "the ping-pong"))
	})
}

func TestBellAllocatesNothing(t *testing.T) {
	eachBell(t, func(t *testing.T, newBell func() Bell) {
		b := newBell()
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			b.Ring()
			b.Sleep(hour)
		}))
	})
}

// Another process rings by opening the descriptor's entry in /proc.
func TestPipeBellRungByAnotherProcess(t *testing.T) {
	b, err := NewPipeBell()
	require.NoError(t, err)
	defer b.Close()
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), b.WriteFD())
	ringer := exec.Command("sh", "-c", "printf . > "+path)
	done := spawn(ringer.Run)
	b.Sleep(hour)
	assert.NoError(t, within(t, done, "the other process"))
	assert.True(t, sleeps(b), "it was rung once")
}

// Who rings a bell that another process has closed gets an error, and not a signal.
func TestPipeBellRungAfterItsEnd(t *testing.T) {
	b, err := NewPipeBell()
	require.NoError(t, err)
	path := fmt.Sprintf("/proc/self/fd/%d", b.WriteFD())
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	n, err := unix.Write(fd, ring)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	b.Sleep(hour)
	require.NoError(t, b.Close())
	_, err = unix.Write(fd, ring)
	assert.ErrorIs(t, err, unix.EPIPE)
}

func TestSystemClock(t *testing.T) {
	c := SystemClock()
	a := c.Now()
	time.Sleep(time.Millisecond)
	assert.GreaterOrEqual(t, c.Now()-a, int64(time.Millisecond))
}
