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

// eachWakeup runs a test on every kind of Wakeup.
func eachWakeup(t *testing.T, test func(t *testing.T, newWakeup func() Wakeup)) {
	t.Run("chan", func(t *testing.T) {
		test(t, func() Wakeup { return NewChanWakeup() })
	})
	t.Run("pipe", func(t *testing.T) {
		test(t, func() Wakeup {
			u, err := NewPipeWakeup()
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, u.Close()) })
			return u
		})
	})
}

// sleeps reports whether Sleep sleeps for its whole time, which means that no wake-up is pending.
func sleeps(u Wakeup) bool {
	const nanos = int64(5 * time.Millisecond)
	start := time.Now()
	u.Sleep(nanos)
	return int64(time.Since(start)) >= nanos
}

func TestWakeup(t *testing.T) {
	eachWakeup(t, func(t *testing.T, newWakeup func() Wakeup) {
		for _, test := range []struct {
			name string
			do   func(u Wakeup)
		}{
			{"no Wake: the time ends the sleep", func(u Wakeup) { assert.True(t, sleeps(u)) }},
			{"no time: Sleep returns", func(u Wakeup) { u.Sleep(0); u.Sleep(-1); assert.True(t, sleeps(u)) }},
			{"Wake before the sleep", func(u Wakeup) { u.Wake(); u.Sleep(hour); assert.True(t, sleeps(u)) }},
			{"Wake and Sleep, again and again", func(u Wakeup) {
				for range 100 {
					u.Wake()
					u.Sleep(hour)
				}
				assert.True(t, sleeps(u))
			}},
			{"many Wakes end one sleep, and none blocks", func(u Wakeup) {
				for range 10_000 {
					u.Wake()
				}
				u.Sleep(hour)
				assert.True(t, sleeps(u))
			}},
			{"Wake after a sleep that timed out", func(u Wakeup) { sleeps(u); u.Wake(); u.Sleep(hour) }},
			{"Wake during the sleep", func(u Wakeup) {
				go u.Wake()
				u.Sleep(hour)
			}},
			{"Close during the sleep", func(u Wakeup) {
				closed := spawn(u.Close)
				u.Sleep(hour)
				assert.NoError(t, <-closed)
			}},
			{"after Close nothing blocks", func(u Wakeup) {
				require.NoError(t, u.Close())
				for range 3 {
					u.Sleep(hour)
				}
				for range 3 {
					u.Wake()
				}
				assert.NoError(t, u.Close(), "second Close")
			}},
			{"Wakes from many goroutines, and Close meanwhile", func(u Wakeup) {
				var wakers sync.WaitGroup
				for range 4 {
					wakers.Go(func() {
						for range 1000 {
							u.Wake()
						}
					})
				}
				for range 10 {
					u.Sleep(int64(time.Millisecond))
				}
				assert.NoError(t, u.Close())
				wakers.Wait()
			}},
		} {
			t.Run(test.name, func(t *testing.T) { test.do(newWakeup()) })
		}
	})
}

// A lost wake-up would end the ping-pong.
func TestWakeupPingPongLosesNone(t *testing.T) {
	const rounds = 2000
	eachWakeup(t, func(t *testing.T, newWakeup func() Wakeup) {
		ping, pong := newWakeup(), newWakeup()
		done := spawn(func() error {
			for range rounds {
				ping.Sleep(hour)
				pong.Wake()
			}
			return nil
		})
		for range rounds {
			ping.Wake()
			pong.Sleep(hour)
		}
		require.NoError(t, within(t, done, "the ping-pong"))
	})
}

func TestWakeupAllocatesNothing(t *testing.T) {
	eachWakeup(t, func(t *testing.T, newWakeup func() Wakeup) {
		u := newWakeup()
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			u.Wake()
			u.Sleep(hour)
		}))
	})
}

func TestPipeWakeupByAnotherProcess(t *testing.T) {
	u, err := NewPipeWakeup()
	require.NoError(t, err)
	defer u.Close()
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), u.WriteFD())
	done := spawn(exec.Command("sh", "-c", "printf . > "+path).Run)
	u.Sleep(hour)
	assert.NoError(t, within(t, done, "the other process"))
	assert.True(t, sleeps(u), "one byte ends one sleep")
}

// A write to the pipe after its owner's Close fails, and raises no signal.
func TestWriteToClosedPipeWakeupFails(t *testing.T) {
	u, err := NewPipeWakeup()
	require.NoError(t, err)
	path := fmt.Sprintf("/proc/self/fd/%d", u.WriteFD())
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	n, err := unix.Write(fd, wakeByte)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	u.Sleep(hour)
	require.NoError(t, u.Close())
	_, err = unix.Write(fd, wakeByte)
	assert.ErrorIs(t, err, unix.EPIPE)
}
